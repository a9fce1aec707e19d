"""Failures and bad inputs that jaxrl must survive, and the tests that prove that it does.

One row per case. `tests` are pytest ids; where a case lists several variants, they cover all of
them together. `excuse` says why a case, or the rest of one, cannot apply.
`tests/test_reliability.py` checks that no case is missing and that every test named here exists.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """One failure or bad input, what proves it handled, and why a part cannot apply."""

    what: str
    tests: tuple[str, ...] = ()
    excuse: str = ""


PROCESSES = "tests/training/test_processes.py"
LOOP = "tests/training/test_loop.py"
CHECKPOINT = "tests/checkpoint/test_manager.py"
COMMANDS = "tests/test_train.py"
REPLAY_RUNS = "tests/training/test_off_policy_runs.py"
OFF_POLICY = "tests/algorithms/off_policy/test_learning.py"
PPO = "tests/algorithms/ppo/test_algorithm.py"
VECTOR = "tests/envs/test_vector_env.py"
NORMALIZER = "tests/learning/test_normalizer.py"
TROUBLE = "tests/training/test_nan_guard.py"
SINKS = "tests/loggers/test_sinks.py"
MANIFESTS = "tests/checkpoint/test_manifest.py"
HOSTILE = "tests/loggers/test_run_dir.py"
VALUES = "tests/config/test_values.py"
ERRORS = "tests/test_errors.py"
ONE_PROCESS = "Training runs in one process; several come with issue 30."

CASES = {
    # Stop and resume
    1: Case(
        "resume equals an uninterrupted run: PPO, PPO with LSTM, SAC, TD3, AMP, RRD",
        (
            f"{LOOP}::test_a_resume_that_is_longer_equals_one_long_run",
            f"{LOOP}::test_resume_with_memory_and_priorities_equals_one_long_run",
            f"{REPLAY_RUNS}::test_resume_equals_one_long_run",  # SAC and RRD
            f"{OFF_POLICY}::test_a_checkpoint_between_two_turns_of_the_actor_goes_on_alike",
            "tests/training/test_amp_runs.py::test_a_resumed_run_goes_on_alike",
            "tests/programs/test_offline.py::test_resume_equals_one_long_run",
        ),
    ),
    2: Case(
        "resume twice in a row",
        (f"{PROCESSES}::test_polite_stops_save_and_resume_bit_for_bit",),
    ),
    3: Case(
        "Ctrl-C while compiling, training, evaluating and saving",
        (f"{LOOP}::test_ctrl_c_at_any_moment_resumes_to_the_same_end",),
    ),
    4: Case("a second Ctrl-C", (f"{PROCESSES}::test_second_interrupt_exits_at_once",)),
    5: Case(
        "SIGTERM without and with jax.distributed",
        (
            f"{PROCESSES}::test_polite_stops_save_and_resume_bit_for_bit",
            "tests/training/test_signals.py::"
            "test_sigterm_asks_for_a_stop_and_handlers_are_given_back",
        ),
        f"jax.distributed is never initialised. {ONE_PROCESS}",
    ),
    6: Case(
        "SIGKILL before, during and after a save; tools/kill_soak.py does it 100 times",
        (
            f"{PROCESSES}::test_killed_again_and_again_it_still_arrives",
            f"{PROCESSES}::test_the_soak_notices_what_differs",
            f"{CHECKPOINT}::test_killed_at_random_moments",
            f"{LOOP}::test_a_run_killed_before_its_first_checkpoint_starts_over",
            f"{LOOP}::test_a_first_checkpoint_may_be_lost_until_the_second_is_due",
        ),
    ),
    7: Case(
        "SIGKILL between the row of the log and the checkpoint: no row twice, none missing",
        (
            f"{PROCESSES}::test_killed_again_and_again_it_still_arrives",
            f"{LOOP}::test_damaged_newest_checkpoint_falls_back_and_says_so",
            f"{LOOP}::test_an_error_before_logging_loses_no_row",
        ),
    ),
    8: Case(
        "resume with more total steps",
        (f"{LOOP}::test_a_resume_that_is_longer_equals_one_long_run",),
    ),
    9: Case("resume of a finished run", (f"{LOOP}::test_resuming_a_finished_run_changes_nothing",)),
    10: Case(
        "resume with a changed hyper-parameter",
        (
            f"{LOOP}::test_resume_refuses_to_shrink_and_to_mix_settings",
            f"{COMMANDS}::test_bad_input_is_named_and_refused[--resume runs/a --num-envs 8]",
        ),
    ),
    11: Case(
        "resume with another number of environments, network, type or algorithm",
        (
            f"{LOOP}::test_resume_into_another_shape_is_refused",
            f"{CHECKPOINT}::test_shape_mismatch_names_the_leaf_and_is_not_taken_for_damage",
            f"{CHECKPOINT}::test_other_mismatches",
        ),
    ),
    12: Case(
        "resume on another number of devices",
        (
            f"{CHECKPOINT}::test_shardings_of_the_target_are_honoured",
            f"{CHECKPOINT}::test_saved_on_eight_devices_restored_in_a_process_with_one",
            "tests/programs/test_device.py::test_how_much_another_number_of_devices_changes",
        ),
    ),
    13: Case(
        "two processes in one run folder", (f"{PROCESSES}::test_a_second_process_is_kept_out",)
    ),
    14: Case(
        "resume from a folder that is empty, missing or something else",
        (
            f"{COMMANDS}::test_resume_folder_must_be_a_run",
            f"{COMMANDS}::test_bad_input_is_named_and_refused[--resume /does/not/exist]",
        ),
    ),
    15: Case(
        "a run folder that was moved",  # both resume a copy in another place
        (
            f"{LOOP}::test_damaged_newest_checkpoint_falls_back_and_says_so",
            f"{LOOP}::test_a_run_killed_before_its_first_checkpoint_starts_over",
        ),
    ),
    # Storage
    16: Case(
        "a full disk during a checkpoint, a TensorBoard write and a video",
        (
            f"{CHECKPOINT}::test_full_disk_surfaces_once_and_leaves_the_earlier_ones",
            f"{CHECKPOINT}::test_write_errors_from_the_system_do_not_hang_the_process",
            f"{LOOP}::test_disk_errors_are_readable",
            f"{SINKS}::test_a_full_disk_ends_tensorboard_with_one_warning_and_training_goes_on",
            f"{SINKS}::test_a_full_disk_stops_the_log_and_names_its_file",
            "tests/training/test_callback_runner.py::test_a_video_that_cannot_be_made_stops_nothing",
        ),
    ),
    17: Case(
        "folders that may not be read or written, as an ordinary user",
        (
            "tests/test_permissions.py::test_what_is_denied_is_named_and_left_alone",
            "tests/test_permissions.py::test_permissions_apply_to_the_thread_alone",
        ),
    ),
    18: Case(
        "paths that are files, relative, links or long, with spaces and Unicode",
        (
            f"{LOOP}::test_a_run_may_be_anywhere",
            f"{LOOP}::test_names_that_are_too_long_are_refused",
            f"{CHECKPOINT}::test_paths",
            f"{CHECKPOINT}::test_path_is_a_file",
            f"{COMMANDS}::test_unwritable_run_dir",
        ),
    ),
    19: Case(
        "truncated, deleted, flipped and foreign files in a checkpoint",
        (
            f"{CHECKPOINT}::test_damage_falls_back_says_so_and_is_replaced_by_a_later_save",
            f"{CHECKPOINT}::test_digest_names_the_leaf",
            f"{LOOP}::test_damaged_newest_checkpoint_falls_back_and_says_so",
            f"{MANIFESTS}::test_every_value_of_a_wrong_type_is_damage",
            f"{MANIFESTS}::test_every_value_that_is_missing_is_damage",
            f"{MANIFESTS}::test_documents_that_are_no_manifest_fall_back",
        ),
    ),
    20: Case(
        "all checkpoints are damaged",
        (
            f"{CHECKPOINT}::test_all_damaged",
            f"{LOOP}::test_without_a_whole_checkpoint_nothing_starts_over",
        ),
    ),
    21: Case(
        "leftovers of killed saves",
        (f"{CHECKPOINT}::test_leftovers_are_never_read_and_go_at_the_first_save",),
    ),
    22: Case(
        "a clock that goes backwards; two runs of one second",
        (
            f"{SINKS}::test_a_clock_that_runs_backwards_stops_nothing",
            f"{SINKS}::test_runs_that_start_in_the_same_second_have_folders_of_their_own",
        ),
    ),
    23: Case(
        "empty, None and Python leaves, typed keys, more than 2^31 steps",
        (
            f"{CHECKPOINT}::test_every_kind_of_leaf_comes_back_bit_for_bit",
            f"{CHECKPOINT}::test_state_without_data",
            f"{CHECKPOINT}::test_paths",  # of step 2^31 + 5
            f"{CHECKPOINT}::test_steps_are_ordered_as_numbers",
            f"{SINKS}::test_steps_that_no_int32_holds_are_logged_as_they_are",
        ),
    ),
    24: Case(
        "a checkpoint of another version",
        (
            f"{CHECKPOINT}::test_damage_falls_back_says_so_and_is_replaced_by_a_later_save",
            f"{CHECKPOINT}::test_other_mismatches",
            f"{COMMANDS}::test_files_of_an_earlier_version_have_defaults_for_what_is_new",
        ),
    ),
    25: Case(
        "which checkpoints are kept: best and last, NaN and infinite metrics, no evaluation",
        (
            f"{CHECKPOINT}::test_newest_and_best_are_kept",
            f"{CHECKPOINT}::test_old_ones_go_only_after_the_new_one_is_there",
        ),
    ),
    # Numerics
    26: Case(
        "NaN or infinity in a reward, observation or action",
        (
            f"{VECTOR}::test_divergence_ends_the_episode_and_is_hidden",
            f"{VECTOR}::test_divergence_in_one_environment_leaves_the_others_alone",
            f"{VECTOR}::test_an_ending_that_is_nan_ends_the_episode_and_is_counted",
            f"{VECTOR}::test_a_reset_that_is_nan_is_counted_and_hidden",
            f"{TROUBLE}::test_an_environment_that_breaks_stops_the_run_and_leaves_its_state",
            f"{TROUBLE}::test_a_reset_that_is_nan_stops_the_run_where_asked_to",
            f"{TROUBLE}::test_a_run_whose_every_step_is_non_finite_does_not_end_well",
            "tests/programs/test_gymnasium.py::test_every_non_finite_value_is_counted",
            # Actions are not finite where weights are not.
            "tests/training/test_warm_start.py::test_a_policy_with_nan_weights_is_refused",
        ),
    ),
    27: Case(
        "gradients that are not finite, once and for good",
        (
            f"{PPO}::test_non_finite_gradients_are_skipped_and_counted",
            "tests/learning/test_optimizer.py::test_non_finite_gradients_change_nothing",
            f"{LOOP}::test_persistent_non_finite_gradients_stop_the_run",
        ),
    ),
    28: Case(
        "no variance: in observations, rewards and advantages",
        (
            f"{NORMALIZER}::test_constant_dimensions_stay_finite",
            f"{PPO}::test_one_environment_one_step_one_minibatch",
            "tests/learning/test_losses.py::test_explained_variance_of_a_constant_target",
        ),
    ),
    29: Case(
        "huge and denormal observations",
        (
            f"{NORMALIZER}::test_huge_and_denormal_observations_stay_finite",
            f"{NORMALIZER}::test_a_number_too_large_to_square_is_not_remembered",
            f"{PPO}::test_one_huge_observation_does_not_blind_the_agent",
        ),
    ),
    30: Case(
        "log-probabilities where tanh is saturated",
        (
            "tests/learning/test_distributions.py::test_far_actions_stay_finite",
            "tests/learning/test_distributions.py::test_log_det_tanh",
        ),
    ),
    31: Case(
        "episodes longer than the run, never done, or done in every step",
        (
            f"{LOOP}::test_persistent_non_finite_gradients_stop_the_run",  # none ends in this run
            f"{PPO}::test_one_environment_one_step_one_minibatch",  # one ends in every step
            "tests/algorithms/ppo/test_probes.py::test_time_out_bootstraps",
        ),
        "An episode without a step cannot be: `done` is read after a step only.",
    ),
    32: Case(
        "truncation at the end of a rollout, with termination; resets must not leak",
        (
            "tests/test_rollout.py::test_a_time_limit_on_the_last_step_of_a_rollout",
            "tests/test_rollout.py::test_next_observation_is_the_true_successor",
            f"{VECTOR}::test_termination_wins_over_the_time_limit",
            f"{VECTOR}::test_next_obs_of_a_termination_is_not_the_fresh_one",
            "tests/learning/test_gae.py::test_nothing_leaks_across_an_ending",
            "tests/learning/test_gae.py::test_truncation_differs_by_the_discounted_successor",
        ),
    ),
    33: Case(
        "one environment, one step, one minibatch",
        (f"{PPO}::test_one_environment_one_step_one_minibatch",),
    ),
    34: Case(
        "the sign of the target entropy; an alpha that overflows",
        (
            f"{OFF_POLICY}::test_alpha_falls_above_the_target_entropy_and_rises_below",
            f"{OFF_POLICY}::test_sac_losses_are_those_of_another_account",
            f"{OFF_POLICY}::test_an_infinite_alpha_is_skipped_and_counted",
        ),
    ),
    35: Case(
        "the normaliser with no sample, after 10^9, merged over devices",
        (
            f"{NORMALIZER}::test_nothing_seen_changes_nothing",
            f"{NORMALIZER}::test_long_runs_keep_their_statistics",
            "tests/utils/test_sharding.py::test_devices_agree_on_gradients_statistics_and_metrics",
        ),
    ),
    36: Case(
        "64-bit JAX; bfloat16",
        (
            f"{PPO}::test_state_keeps_shapes_types_and_weakness",
            "tests/networks/test_actor_critic.py::test_bfloat16_is_close_and_stays_inside",
            f"{CHECKPOINT}::test_every_kind_of_leaf_comes_back_bit_for_bit",
        ),
    ),
    # Configuration and command line
    37: Case(
        "unknown flags, environments and algorithms",
        (
            f"{COMMANDS}::test_unknown_flags_and_types_exit_2",
            f"{COMMANDS}::test_bad_input_is_named_and_refused[--env antt]",
        ),
    ),
    38: Case(
        "wrong types, negative, zero, NaN and huge values of every number",
        (
            f"{VALUES}::test_any_value_of_a_numeric_field_is_accepted_or_named",
            f"{VALUES}::test_every_section_is_checked",
            f"{VALUES}::test_no_numeric_field_takes_these",
            f"{VALUES}::test_huge_numbers_name_their_flag_and_leave_no_folder",
            f"{VALUES}::test_settings_of_the_wrong_type_are_named",
        ),
    ),
    39: Case(
        "environments, steps, minibatches and devices that do not divide",
        (
            f"{COMMANDS}::test_bad_input_is_named_and_refused",
            f"{REPLAY_RUNS}::test_what_cannot_be_run_is_named",
            "tests/learning/test_minibatch.py::test_minibatches_that_do_not_fit_raise",
        ),
    ),
    40: Case(
        "memory with more minibatches than segments",
        (
            f"{COMMANDS}::test_bad_input_is_named_and_refused"
            "[memory --num-envs 2 --ppo.num-minibatches 64]",
        ),
    ),
    41: Case(
        "a buffer smaller than a batch or than the warm-up",
        (
            f"{REPLAY_RUNS}::test_what_cannot_be_run_is_named",
            f"{REPLAY_RUNS}::test_the_buffer_size_an_error_asks_for_is_enough",
            f"{OFF_POLICY}::test_nothing_is_drawn_before_an_episode_is_complete",
        ),
    ),
    42: Case(
        "segments longer than episodes",
        (
            f"{OFF_POLICY}::test_nothing_is_drawn_before_an_episode_is_complete",
            "tests/learning/test_rrd.py::test_unbiased_loss_is_that_of_the_full_decomposition",
            "tests/learning/test_replay_buffer.py::"
            "test_samples_come_from_one_episode_and_long_ones_more_often",
            "tests/algorithms/ppo/test_segments.py::"
            "test_with_memory_the_ratio_is_one_when_nothing_is_learned",
        ),
    ),
    43: Case(
        "fewer total steps than one iteration has", (f"{LOOP}::test_total_steps_replaces_epochs",)
    ),
    44: Case(
        "evaluations between two cycles",
        (f"{LOOP}::test_evaluation_does_not_change_training",),
        "--eval.every counts cycles, so that every value of it is a whole number of them.",
    ),
    45: Case(
        "several problems are reported together", (f"{COMMANDS}::test_all_problems_come_together",)
    ),
    46: Case(
        "malformed, truncated and hostile config.json",
        (
            f"{COMMANDS}::test_hostile_config_files_are_refused",
            f"{COMMANDS}::test_truncated_and_deep_config_files_are_refused",
            f"{HOSTILE}::test_code_that_a_file_names_is_not_imported",
            f"{VALUES}::test_settings_of_the_wrong_type_are_named",
        ),
    ),
    47: Case(
        "every preset trains; with its own physics by hand: pytest -m sweep",
        (
            "tests/config/test_presets.py::test_a_preset_trains",
            f"{COMMANDS}::test_every_preset_is_valid_and_survives_json",
            "tests/docs/test_commands.py::test_everything_shown_runs",
        ),
    ),
    48: Case(
        "--help without JAX, and fast", (f"{COMMANDS}::test_help_is_fast_and_leaves_jax_alone",)
    ),
    49: Case(
        "a missing extra: gym, offline, search, video, wandb",
        (
            "tests/test_extras.py::test_a_missing_package_is_named_before_there_is_a_folder",
            "tests/test_extras.py::test_every_hint_names_an_extra_that_exists",
            "tests/experiments/test_search.py::test_a_missing_optuna_is_named",
            "tests/rendering/test_episodes.py::test_without_ffmpeg_a_hint_is_given",
        ),
        "There is no extra for MuJoCo Playground.",
    ),
    # Data
    50: Case(
        "motion clips: missing joints, NaN, 1 frame, wrong rate or robot, no file, pickles",
        (
            "tests/motion/formats/test_formats.py::test_files_of_another_skeleton_name_the_joint",
            "tests/motion/test_clip.py::test_bad_numbers_are_named_by_joint_and_frame",
            "tests/motion/test_clip.py::test_bad_clips_are_refused",
            "tests/motion/formats/test_formats.py::test_bad_durations_are_refused",
            "tests/motion/test_amp_humanoid.py::test_other_skeletons_are_refused",
            "tests/motion/formats/test_formats.py::test_paths_without_motions_are_refused",
            "tests/motion/formats/test_pickle_arrays.py::test_nothing_is_run",
        ),
    ),
    51: Case(
        "replay that is drawn from before it is filled",
        (
            f"{OFF_POLICY}::test_nothing_is_drawn_before_an_episode_is_complete",
            "tests/learning/test_replay_buffer.py::test_ring_holds_the_newest_steps",
            "tests/learning/test_replay_buffer.py::test_every_step_is_drawn_equally_often",
        ),
    ),
    52: Case(
        "segments never cross the end of an episode; the ring wraps exactly",
        (
            "tests/learning/test_replay_buffer.py::test_index_holds_exactly_the_complete_episodes",
            "tests/learning/test_replay_buffer.py::"
            "test_samples_come_from_one_episode_and_long_ones_more_often",
            "tests/learning/test_replay_buffer.py::test_ring_holds_the_newest_steps",
            "tests/algorithms/off_policy/test_replay.py::test_whole_episodes_are_drawn_from_every_shard",
        ),
    ),
    53: Case(
        "RRD with episodes of no step or of one",
        (
            "tests/learning/test_rrd.py::"
            "test_unbiased_loss_is_that_of_the_full_decomposition[False-1-2]",
            "tests/learning/test_replay_buffer.py::test_index_holds_exactly_the_complete_episodes",
            "tests/programs/test_offline.py::"
            "test_episodes_without_steps_to_tell_apart_say_nothing_of_steps",
            "tests/data/test_hdf5.py::test_whatever_is_wrong_is_named",
        ),
    ),
    # Devices
    54: Case(
        "1, 2 and 4 devices learn alike",
        (
            "tests/utils/test_sharding.py::test_devices_agree_on_gradients_statistics_and_metrics",
            "tests/utils/test_sharding.py::test_rows_are_split_and_all_else_is_replicated",
            "tests/utils/test_sharding.py::test_evaluation_is_the_same_on_several_devices",
        ),
    ),
    55: Case("two processes train, save, resume and log once", excuse=ONE_PROCESS),
    56: Case("one of several processes dies", excuse=ONE_PROCESS),
    57: Case("processes with different settings or code", excuse=ONE_PROCESS),
    58: Case(
        "the device is out of memory",
        (
            f"{TROUBLE}::test_too_little_memory_names_what_is_large_and_how_to_shrink_it",
            f"{TROUBLE}::test_the_largest_array_of_replay_is_named",
            f"{TROUBLE}::test_a_state_larger_than_the_memory_is_refused_before_there_is_a_folder",
            f"{ERRORS}::test_too_little_memory_is_a_sentence",
        ),
    ),
    59: Case(
        "no GPU, or the wrong jaxlib",
        (
            f"{ERRORS}::test_a_platform_that_is_not_there_is_named",
            f"{ERRORS}::test_a_gpu_that_is_not_used_is_mentioned",
        ),
    ),
    60: Case(
        "XLA_FLAGS and JAX_PLATFORMS of the user win",
        (
            "tests/utils/test_xla_options.py::"
            "test_options_follow_the_devices_and_the_users_flags_win",
            "tests/utils/test_xla_flags.py::test_flags_are_added_where_jaxlib_knows_them",
            f"{COMMANDS}::test_memory_of_a_gpu_is_taken_as_needed_unless_asked_for",
        ),
    ),
    # Outputs
    61: Case(
        "steps of the log and of TensorBoard increase across a resume",
        (
            f"{LOOP}::test_metrics_have_sb3_names_and_increasing_steps",
            f"{LOOP}::test_damaged_newest_checkpoint_falls_back_and_says_so",
            f"{PROCESSES}::test_killed_again_and_again_it_still_arrives",
        ),
    ),
    62: Case(
        "a closed stdout, no terminal, a narrow one",
        (
            "tests/loggers/test_console.py::test_plain_lines_without_a_terminal",
            "tests/loggers/test_console.py::test_a_narrow_terminal_is_not_overrun",
            f"{ERRORS}::test_a_closed_stdout_is_no_error",
            f"{ERRORS}::test_a_reader_that_leaves_ends_the_command_quietly",
            f"{ERRORS}::test_streams_without_a_character_show_its_code",
            f"{ERRORS}::test_help_is_written_in_ascii_and_in_one_column",
        ),
    ),
    63: Case(
        "a video without FFmpeg or a display",
        (
            "tests/training/test_callback_runner.py::test_a_video_that_cannot_be_made_stops_nothing",
            "tests/rendering/test_episodes.py::test_without_ffmpeg_a_hint_is_given",
            "tests/rendering/test_mujoco_renderer.py::test_a_ball_is_drawn_or_a_hint_is_given",
        ),
    ),
    64: Case(
        "TensorBoard files that are deleted during a run",
        (f"{LOOP}::test_events_that_are_deleted_meanwhile_stop_nothing",),
        "Linux has no lock that would keep a program from appending to its own open file.",
    ),
    65: Case(
        "an exported policy acts the same in a new process",
        (
            "tests/policies/test_export.py::"
            "test_a_trained_policy_acts_alike_in_a_process_without_jax",
            "tests/policies/test_export.py::test_both_forms_act_like_the_policy",
        ),
    ),
    66: Case(
        "the same seed twice, and another one",
        (f"{LOOP}::test_same_seed_same_run_other_seed_other_run",),
    ),
    67: Case(
        "evaluations do not change training", (f"{LOOP}::test_evaluation_does_not_change_training",)
    ),
    68: Case(
        "logging does not change training",
        (
            "tests/training/test_callback_runner.py::test_events_come_in_order_and_change_nothing",
            f"{LOOP}::test_profile_writes_a_trace_and_changes_nothing",
            "tests/programs/test_device.py::"
            "test_longer_cycles_train_alike_from_the_same_start_states",
        ),
        "There is no frequency to choose: every cycle has one row.",
    ),
    69: Case(
        "steps per second leave out compiling and count repeated actions",
        (
            f"{LOOP}::test_speed_leaves_out_compiling_and_counts_every_environment_step",
            f"{VECTOR}::test_action_repeat_sums_rewards_and_counts_environment_steps",
        ),
    ),
    70: Case(
        "long runs: no growing memory, nothing compiled again",
        (
            f"{LOOP}::test_no_array_is_left_behind_by_a_cycle",
            f"{LOOP}::test_nothing_compiles_after_the_first_epoch",
        ),
    ),
    # Security
    71: Case(
        "pickles, class paths, absolute paths and `..` in checkpoints and settings",
        (
            f"{HOSTILE}::test_code_that_a_file_names_is_not_imported",
            f"{HOSTILE}::test_a_part_that_leads_out_of_the_run_is_refused",
            "tests/training/test_seeds.py::test_members_are_folders_inside",
            "tests/policies/test_files.py::test_arrays_that_are_no_numbers_are_refused",
            f"{MANIFESTS}::test_every_value_of_a_wrong_type_is_damage",
        ),
    ),
    72: Case(
        "a policy file runs no code",
        (
            f"{COMMANDS}::test_a_policy_file_runs_no_code",
            "tests/motion/formats/test_pickle_arrays.py::test_nothing_is_run",
        ),
    ),
    73: Case("no network", (f"{LOOP}::test_nothing_reaches_for_the_network",)),
}
