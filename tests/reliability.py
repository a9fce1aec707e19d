"""Failures and bad inputs that jaxrl must handle, and the tests that cover them.

One row per case. `tests` are pytest ids; where a case lists several variants, the tests together
cover all of them. `not_applicable` says why a case, or a part of it, cannot occur.
`tests/test_reliability.py` checks that no case is missing and that every test named here exists.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """A failure or bad input, the tests that cover it, and why a part cannot occur."""

    description: str
    tests: tuple[str, ...] = ()
    not_applicable: str = ""


PROCESSES = "tests/training/test_processes.py"
LOOP = "tests/training/test_loop.py"
CHECKPOINT = "tests/checkpoint/test_manager.py"
TRAIN = "tests/test_train.py"
REPLAY_RUNS = "tests/training/test_off_policy_runs.py"
OFF_POLICY = "tests/algorithms/off_policy/test_learning.py"
PPO = "tests/algorithms/ppo/test_algorithm.py"
VECTOR = "tests/envs/test_vector_env.py"
NORMALIZER = "tests/learning/test_normalizer.py"
NAN_GUARD = "tests/training/test_nan_guard.py"
SINKS = "tests/loggers/test_sinks.py"
MANIFESTS = "tests/checkpoint/test_manifest.py"
RUN_DIR = "tests/loggers/test_run_dir.py"
VALUES = "tests/config/test_values.py"
ERRORS = "tests/test_errors.py"
DISTRIBUTED = "tests/training/test_distributed.py"
WORKERS = "tests/studies/test_workers.py"

CASES = {
    # Stop and resume
    1: Case(
        "resume equals an uninterrupted run: PPO, PPO with LSTM, REPPO, SAC, TD3, AMP, RRD",
        (
            f"{LOOP}::test_extended_resume_equals_one_long_run",
            f"{LOOP}::test_resume_with_lstm_and_prioritized_sampling_is_exact",
            "tests/training/test_on_policy_runs.py::test_resume_equals_one_long_run",
            f"{REPLAY_RUNS}::test_resume_equals_one_long_run",  # SAC and RRD
            f"{OFF_POLICY}::test_checkpoint_between_delayed_updates_resumes_exactly",
            "tests/training/test_amp_runs.py::test_resume_equals_uninterrupted_run",
            "tests/programs/test_offline.py::test_resume_equals_one_long_run",
        ),
    ),
    2: Case(
        "resume twice in a row",
        (f"{PROCESSES}::test_interrupted_and_killed_run_resumes_exactly",),
    ),
    3: Case(
        "Ctrl-C while compiling, training, evaluating and saving",
        (f"{LOOP}::test_resume_after_ctrl_c_equals_uninterrupted_run",),
    ),
    4: Case("a second Ctrl-C", (f"{PROCESSES}::test_second_interrupt_exits_at_once",)),
    5: Case(
        "SIGTERM without and with jax.distributed",
        (
            f"{PROCESSES}::test_interrupted_and_killed_run_resumes_exactly",
            "tests/utils/test_signals.py::test_sigterm_requests_stop_and_handlers_are_restored",
            f"{DISTRIBUTED}::test_killed_process_0_is_named_and_sigterm_to_one_stops_all",
        ),
    ),
    6: Case(
        "SIGKILL before, during and after a save; tools/kill_soak.py does it 100 times",
        (
            f"{PROCESSES}::test_interrupted_and_killed_run_resumes_exactly",
            f"{PROCESSES}::test_kill_soak_detects_differences",
            f"{DISTRIBUTED}::test_kills_of_any_rank_lose_nothing",
            f"{CHECKPOINT}::test_checkpoints_survive_sigkill_at_random_times",
            f"{LOOP}::test_run_killed_before_first_checkpoint_restarts",
            f"{LOOP}::test_missing_first_checkpoint_is_tolerated_until_second_is_due",
        ),
    ),
    7: Case(
        "SIGKILL between the row of the log and the checkpoint: no row twice, none missing",
        (
            f"{PROCESSES}::test_interrupted_and_killed_run_resumes_exactly",
            f"{LOOP}::test_damaged_checkpoint_falls_back_with_a_warning",
            f"{LOOP}::test_error_before_logging_loses_no_row",
        ),
    ),
    8: Case(
        "resume with more total steps",
        (f"{LOOP}::test_extended_resume_equals_one_long_run",),
    ),
    9: Case("resume of a finished run", (f"{LOOP}::test_resuming_a_finished_run_changes_nothing",)),
    10: Case(
        "resume with a changed hyper-parameter",
        (
            f"{LOOP}::test_resume_refuses_fewer_epochs_and_changed_settings",
            f"{TRAIN}::test_bad_flags_are_named_and_refused[--resume runs/a --num-envs 8]",
        ),
    ),
    11: Case(
        "resume with another number of environments, network, type or algorithm",
        (
            f"{LOOP}::test_resume_with_changed_shapes_is_refused",
            f"{CHECKPOINT}::test_shape_mismatch_names_the_leaf_and_does_not_fall_back",
            f"{CHECKPOINT}::test_other_mismatches",
        ),
    ),
    12: Case(
        "resume on another number of devices",
        (
            f"{CHECKPOINT}::test_shardings_of_the_target_are_honoured",
            f"{CHECKPOINT}::test_saved_on_eight_devices_restored_in_a_process_with_one",
            f"{DISTRIBUTED}::test_two_and_four_processes",
            "tests/programs/test_device.py::test_resume_with_another_device_count_warns",
        ),
    ),
    13: Case(
        "two processes in one run folder",
        (f"{PROCESSES}::test_locked_run_cannot_be_opened_again",),
    ),
    14: Case(
        "resume from a folder that is empty, missing or something else",
        (
            f"{TRAIN}::test_resume_folder_must_be_a_run",
            f"{TRAIN}::test_bad_flags_are_named_and_refused[--resume /does/not/exist]",
        ),
    ),
    15: Case(
        "a moved run folder",  # both tests resume a copy in another place
        (
            f"{LOOP}::test_damaged_checkpoint_falls_back_with_a_warning",
            f"{LOOP}::test_run_killed_before_first_checkpoint_restarts",
        ),
    ),
    # Storage
    16: Case(
        "a full disk during a checkpoint, a TensorBoard write and a video",
        (
            f"{CHECKPOINT}::test_full_disk_raises_once_and_keeps_earlier_steps",
            f"{CHECKPOINT}::test_os_write_errors_do_not_hang_the_process",
            f"{LOOP}::test_disk_errors_are_readable",
            f"{SINKS}::test_full_disk_disables_tensorboard_with_one_warning",
            f"{SINKS}::test_full_disk_error_names_the_log_file",
            "tests/training/test_callback_runner.py::test_failed_video_does_not_stop_training",
        ),
    ),
    17: Case(
        "folders without read or write permission, as an unprivileged user",
        (
            "tests/test_permissions.py::test_denied_paths_are_named_and_unchanged",
            "tests/test_permissions.py::test_capabilities_are_dropped_in_the_thread_only",
        ),
    ),
    18: Case(
        "paths that are files, relative, links or long, with spaces and Unicode",
        (
            f"{LOOP}::test_run_folder_may_have_any_path",
            f"{LOOP}::test_too_long_folder_names_are_refused",
            f"{CHECKPOINT}::test_paths",
            f"{CHECKPOINT}::test_path_is_a_file",
            f"{TRAIN}::test_unwritable_run_dir",
        ),
    ),
    19: Case(
        "truncated, deleted, flipped and foreign files in a checkpoint",
        (
            f"{CHECKPOINT}::test_damaged_step_falls_back_and_is_replaced_by_next_save",
            f"{CHECKPOINT}::test_digest_names_the_leaf",
            f"{LOOP}::test_damaged_checkpoint_falls_back_with_a_warning",
            f"{MANIFESTS}::test_wrongly_typed_values_are_damage",
            f"{MANIFESTS}::test_missing_values_are_damage",
            f"{MANIFESTS}::test_invalid_documents_fall_back",
        ),
    ),
    20: Case(
        "all checkpoints are damaged",
        (
            f"{CHECKPOINT}::test_all_damaged",
            f"{LOOP}::test_resume_without_intact_checkpoint_is_refused",
        ),
    ),
    21: Case(
        "leftovers of killed saves",
        (f"{CHECKPOINT}::test_leftover_folders_are_ignored_and_removed_on_save",),
    ),
    22: Case(
        "a clock that goes backwards; two runs started in the same second",
        (
            f"{SINKS}::test_event_files_stay_ordered_with_a_backwards_clock",
            f"{SINKS}::test_runs_started_in_the_same_second_get_distinct_folders",
        ),
    ),
    23: Case(
        "empty, None and Python leaves, typed keys, more than 2^31 steps",
        (
            f"{CHECKPOINT}::test_round_trip_of_every_leaf_type",
            f"{CHECKPOINT}::test_state_without_data",
            f"{CHECKPOINT}::test_paths",  # saves step 2^31 + 5
            f"{CHECKPOINT}::test_steps_are_ordered_as_numbers",
            f"{SINKS}::test_steps_beyond_int32_are_logged_exactly",
        ),
    ),
    24: Case(
        "a checkpoint of another version",
        (
            f"{CHECKPOINT}::test_damaged_step_falls_back_and_is_replaced_by_next_save",
            f"{CHECKPOINT}::test_other_mismatches",
            f"{TRAIN}::test_config_files_without_new_fields_get_defaults",
        ),
    ),
    25: Case(
        "retention of checkpoints: best and last, NaN and infinite metrics, no evaluation",
        (
            f"{CHECKPOINT}::test_newest_and_best_are_kept",
            f"{CHECKPOINT}::test_old_steps_are_removed_only_after_the_new_save",
        ),
    ),
    # Numerics
    26: Case(
        "NaN or infinity in a reward, observation or action",
        (
            f"{VECTOR}::test_nonfinite_values_terminate_the_episode_and_are_replaced",
            f"{VECTOR}::test_nonfinite_environment_does_not_affect_the_others",
            f"{VECTOR}::test_nan_done_or_truncation_flag_ends_the_episode",
            f"{VECTOR}::test_nan_reset_is_counted_and_replaced",
            f"{NAN_GUARD}::test_on_nan_stop_dumps_the_nonfinite_environment_state",
            f"{NAN_GUARD}::test_nan_reset_stops_the_run_with_on_nan_stop",
            f"{NAN_GUARD}::test_run_with_only_non_finite_steps_fails",
            "tests/programs/test_gymnasium.py::test_every_non_finite_value_is_counted",
            # Actions are non-finite if weights are.
            "tests/training/test_warm_start.py::test_a_policy_with_nan_weights_is_refused",
        ),
    ),
    27: Case(
        "non-finite gradients: a single update, and all later ones",
        (
            f"{PPO}::test_non_finite_gradients_are_skipped_and_counted",
            "tests/learning/test_optimizer.py::test_non_finite_gradients_change_nothing",
            f"{LOOP}::test_persistent_non_finite_gradients_stop_the_run",
        ),
    ),
    28: Case(
        "zero variance of observations, rewards and advantages",
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
            f"{NORMALIZER}::test_values_that_overflow_when_squared_are_ignored",
            f"{PPO}::test_huge_observation_does_not_reach_the_statistics",
        ),
    ),
    30: Case(
        "log-probabilities where tanh is saturated",
        (
            "tests/learning/test_distributions.py::test_log_prob_of_saturated_actions_is_finite",
            "tests/learning/test_distributions.py::test_log_det_tanh",
        ),
    ),
    31: Case(
        "episodes longer than the run, never done, or done in every step",
        (
            f"{LOOP}::test_persistent_non_finite_gradients_stop_the_run",  # no episode ends
            f"{PPO}::test_one_environment_one_step_one_minibatch",  # ends at every step
            "tests/algorithms/ppo/test_probes.py::test_truncation_bootstraps_unless_disabled",
        ),
        "An episode has at least one step: `done` is read only after a step.",
    ),
    32: Case(
        "truncation at the end of a rollout, with termination; resets must not leak",
        (
            "tests/test_rollout.py::test_truncation_on_the_last_step_of_a_rollout",
            "tests/test_rollout.py::test_next_observation_is_the_true_successor",
            f"{VECTOR}::test_termination_takes_precedence_over_the_time_limit",
            f"{VECTOR}::test_next_obs_at_termination_is_not_the_reset_obs",
            "tests/learning/test_gae.py::test_nothing_leaks_across_episode_ends",
            "tests/learning/test_gae.py::test_truncation_adds_the_discounted_next_value",
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
            f"{OFF_POLICY}::test_sac_losses_match_second_implementation",
            f"{OFF_POLICY}::test_infinite_alpha_skips_and_counts_the_update",
        ),
    ),
    35: Case(
        "the normaliser with no sample, after 10^9, merged over devices",
        (
            f"{NORMALIZER}::test_initial_statistics_leave_data_unchanged",
            f"{NORMALIZER}::test_statistics_stay_accurate_at_large_counts",
            "tests/utils/test_sharding.py::test_devices_agree_on_gradients_statistics_and_metrics",
        ),
    ),
    36: Case(
        "64-bit JAX; bfloat16",
        (
            f"{PPO}::test_train_step_preserves_shapes_dtypes_and_weak_types",
            "tests/networks/test_actor_critic.py::test_bfloat16_is_internal_and_close_to_float32",
            f"{CHECKPOINT}::test_round_trip_of_every_leaf_type",
        ),
    ),
    # Configuration and command line
    37: Case(
        "unknown flags, environments and algorithms",
        (
            f"{TRAIN}::test_bad_flags_are_named_and_refused[ant --num-envs many]",
            f"{TRAIN}::test_bad_flags_are_named_and_refused[--no-such-flag]",
            f"{TRAIN}::test_bad_flags_are_named_and_refused[--env antt]",
        ),
    ),
    38: Case(
        "wrong types, negative, zero, NaN and huge values of every number",
        (
            f"{VALUES}::test_any_numeric_value_is_accepted_or_its_flag_named",
            f"{VALUES}::test_every_section_is_checked",
            f"{VALUES}::test_invalid_values_are_refused_by_every_numeric_field",
            f"{VALUES}::test_huge_numbers_name_their_flag_and_leave_no_folder",
            f"{VALUES}::test_settings_of_the_wrong_type_are_named",
        ),
    ),
    39: Case(
        "environments, steps, minibatches and devices that do not divide",
        (
            f"{TRAIN}::test_bad_flags_are_named_and_refused",
            f"{REPLAY_RUNS}::test_unsupported_settings_are_refused",
            "tests/learning/test_minibatch.py::test_indivisible_minibatches_raise",
        ),
    ),
    40: Case(
        "an RNN with more minibatches than segments",
        (
            f"{TRAIN}::test_bad_flags_are_named_and_refused"
            "[memory --num-envs 2 --ppo.num-minibatches 64]",
        ),
    ),
    41: Case(
        "a buffer smaller than a batch or than the warm-up",
        (
            f"{REPLAY_RUNS}::test_unsupported_settings_are_refused",
            f"{REPLAY_RUNS}::test_buffer_size_suggested_by_an_error_is_accepted",
            f"{OFF_POLICY}::test_no_updates_before_an_episode_is_complete",
        ),
    ),
    42: Case(
        "segments longer than episodes",
        (
            f"{OFF_POLICY}::test_no_updates_before_an_episode_is_complete",
            "tests/learning/test_rrd.py::test_unbiased_loss_equals_full_decomposition",
            "tests/learning/test_replay_buffer.py::"
            "test_samples_stay_in_one_episode_weighted_by_length",
            "tests/algorithms/ppo/test_segments.py::"
            "test_recurrent_ratio_is_one_at_zero_learning_rate",
        ),
    ),
    43: Case(
        "fewer total steps than one iteration", (f"{LOOP}::test_total_steps_replaces_epochs",)
    ),
    44: Case(
        "evaluations between two cycles",
        (f"{LOOP}::test_evaluation_does_not_change_training",),
        "--eval.every counts cycles, so evaluations are always at the end of one.",
    ),
    45: Case(
        "several problems are reported together",
        (f"{TRAIN}::test_all_problems_are_reported_together",),
    ),
    46: Case(
        "malformed, truncated and hostile config.json",
        (
            f"{TRAIN}::test_malformed_config_files_are_refused",
            f"{TRAIN}::test_truncated_and_deeply_nested_config_files_are_refused",
            f"{RUN_DIR}::test_code_named_in_a_config_is_not_imported",
            f"{VALUES}::test_settings_of_the_wrong_type_are_named",
        ),
    ),
    47: Case(
        "every preset trains; on its own physics with pytest -m sweep",
        (
            "tests/config/test_presets.py::test_a_preset_trains",
            f"{TRAIN}::test_every_preset_is_valid_and_round_trips_through_json",
            "tests/docs/test_commands.py::test_documented_commands_and_code_run",
        ),
    ),
    48: Case(
        "--help without JAX, and fast", (f"{TRAIN}::test_help_is_fast_and_does_not_import_jax",)
    ),
    49: Case(
        "a missing extra: gym, offline, search, video, wandb",
        (
            "tests/test_extras.py::test_missing_package_is_named_before_a_folder_is_made",
            "tests/test_extras.py::test_every_hint_names_an_existing_extra",
            "tests/studies/test_search.py::test_missing_optuna_names_the_extra",
            "tests/rendering/test_episodes.py::test_missing_ffmpeg_gives_an_install_hint",
        ),
        "There is no extra for MuJoCo Playground.",
    ),
    # Data
    50: Case(
        "motion clips: missing joints, NaN, 1 frame, wrong rate or robot, no file, pickles",
        (
            "tests/motion/formats/test_formats.py::test_files_of_another_skeleton_report_the_joint",
            "tests/motion/test_clip.py::test_bad_values_are_reported_by_joint_and_frame",
            "tests/motion/test_clip.py::test_bad_clips_are_rejected",
            "tests/motion/formats/test_formats.py::test_bad_durations_are_rejected",
            "tests/motion/test_amp_humanoid.py::test_unknown_skeletons_are_rejected",
            "tests/motion/formats/test_formats.py::test_paths_without_motions_are_rejected",
            "tests/motion/formats/test_pickle_arrays.py::test_no_code_is_executed",
        ),
    ),
    51: Case(
        "sampling from replay before it is filled",
        (
            f"{OFF_POLICY}::test_no_updates_before_an_episode_is_complete",
            "tests/learning/test_replay_buffer.py::test_ring_holds_the_newest_steps",
            "tests/learning/test_replay_buffer.py::test_steps_are_sampled_uniformly",
        ),
    ),
    52: Case(
        "segments never cross the end of an episode; the ring wraps exactly",
        (
            "tests/learning/test_replay_buffer.py::test_index_holds_exactly_the_complete_episodes",
            "tests/learning/test_replay_buffer.py::"
            "test_samples_stay_in_one_episode_weighted_by_length",
            "tests/learning/test_replay_buffer.py::test_ring_holds_the_newest_steps",
            "tests/algorithms/off_policy/test_replay.py::test_whole_episodes_are_sampled_from_every_shard",
        ),
    ),
    53: Case(
        "RRD with episodes of zero steps or one step",
        (
            "tests/learning/test_rrd.py::test_unbiased_loss_equals_full_decomposition[False-1-2]",
            "tests/learning/test_replay_buffer.py::test_index_holds_exactly_the_complete_episodes",
            "tests/programs/test_offline.py::"
            "test_within_episode_correlation_skips_constant_rewards",
            "tests/data/test_hdf5.py::test_invalid_datasets_are_reported_by_name",
        ),
    ),
    # Devices
    54: Case(
        "training on 1, 2 and 4 devices is the same",
        (
            "tests/utils/test_sharding.py::test_devices_agree_on_gradients_statistics_and_metrics",
            "tests/utils/test_sharding.py::test_env_rows_are_sharded_and_the_learner_is_replicated",
            "tests/utils/test_sharding.py::test_evaluation_is_the_same_on_several_devices",
        ),
    ),
    55: Case(
        "two processes train, save, resume and log once; Gymnasium's environments too",
        (f"{DISTRIBUTED}::test_two_and_four_processes",),
    ),
    56: Case(
        "one of several processes dies",
        (
            f"{DISTRIBUTED}::test_killed_process_0_is_named_and_sigterm_to_one_stops_all",
            f"{DISTRIBUTED}::test_two_and_four_processes",
        ),
    ),
    57: Case(
        "processes with different settings or code",
        (f"{DISTRIBUTED}::test_two_and_four_processes",),
    ),
    58: Case(
        "the device is out of memory",
        (
            f"{NAN_GUARD}::test_out_of_memory_error_names_large_arrays_and_flags",
            f"{NAN_GUARD}::test_memory_estimate_names_the_largest_replay_array",
            f"{NAN_GUARD}::test_state_too_large_for_memory_is_refused_before_writing",
            f"{ERRORS}::test_out_of_memory_is_one_message",
        ),
    ),
    59: Case(
        "no GPU, or the wrong jaxlib",
        (
            f"{ERRORS}::test_missing_platform_is_named",
            f"{ERRORS}::test_unused_gpu_is_reported",
        ),
    ),
    60: Case(
        "the user's XLA_FLAGS and JAX_PLATFORMS take precedence",
        (
            "tests/utils/test_xla_options.py::test_options_depend_on_device_and_user_flags_win",
            "tests/utils/test_xla_flags.py::test_flags_are_added_if_jaxlib_supports_them",
            "tests/utils/test_xla_flags.py::test_importing_jaxrl_keeps_jax_from_reserving_gpu_memory",
        ),
    ),
    # Outputs
    61: Case(
        "steps of the log and of TensorBoard increase across a resume",
        (
            f"{LOOP}::test_metrics_have_sb3_names_and_increasing_steps",
            f"{LOOP}::test_damaged_checkpoint_falls_back_with_a_warning",
            f"{PROCESSES}::test_interrupted_and_killed_run_resumes_exactly",
        ),
    ),
    62: Case(
        "a closed stdout, no terminal, a narrow one",
        (
            "tests/loggers/test_console.py::test_plain_lines_without_a_terminal",
            "tests/loggers/test_console.py::test_output_fits_a_narrow_terminal",
            f"{ERRORS}::test_closed_stdout_is_no_error",
            f"{ERRORS}::test_broken_pipe_exits_quietly",
            f"{ERRORS}::test_unencodable_characters_are_escaped",
            f"{ERRORS}::test_help_is_printed_to_a_narrow_ascii_terminal",
        ),
    ),
    63: Case(
        "a video without FFmpeg or a display",
        (
            "tests/training/test_callback_runner.py::test_failed_video_does_not_stop_training",
            "tests/rendering/test_episodes.py::test_missing_ffmpeg_gives_an_install_hint",
            "tests/rendering/test_mujoco_renderer.py::test_ball_is_drawn_or_a_hint_is_given",
        ),
    ),
    64: Case(
        "TensorBoard files that are deleted during a run",
        (f"{LOOP}::test_deleted_tensorboard_events_do_not_stop_training",),
        "On Linux no lock can prevent a program from appending to its own open file.",
    ),
    65: Case(
        "an exported policy acts the same in a new process",
        (
            "tests/policies/test_export.py::test_policy_matches_in_a_process_without_jax",
            "tests/policies/test_export.py::test_both_exports_match_the_policy",
        ),
    ),
    66: Case(
        "the same seed twice, and another one",
        (f"{LOOP}::test_seed_determines_the_run",),
    ),
    67: Case(
        "evaluations do not change training", (f"{LOOP}::test_evaluation_does_not_change_training",)
    ),
    68: Case(
        "logging does not change training",
        (
            "tests/training/test_callback_runner.py::test_events_fire_in_order_without_affecting_training",
            f"{LOOP}::test_profile_writes_a_trace_and_changes_nothing",
            "tests/programs/test_device.py::test_one_long_cycle_equals_two_short_cycles",
        ),
        "The logging interval is fixed: one row per cycle.",
    ),
    69: Case(
        "steps per second exclude compilation and count repeated actions",
        (
            f"{LOOP}::test_fps_excludes_compilation_and_counts_env_steps",
            f"{VECTOR}::test_action_repeat_sums_rewards_and_counts_environment_steps",
        ),
    ),
    70: Case(
        "long runs: no memory growth, no recompilation",
        (
            f"{LOOP}::test_cycles_do_not_leak_device_arrays",
            f"{LOOP}::test_nothing_compiles_after_the_first_epoch",
        ),
    ),
    # Security
    71: Case(
        "pickles, class paths, absolute paths and `..` in checkpoints and settings",
        (
            f"{RUN_DIR}::test_code_named_in_a_config_is_not_imported",
            f"{RUN_DIR}::test_links_out_of_the_run_folder_are_refused",
            "tests/training/test_seeds.py::test_invalid_member_folders_are_refused",
            "tests/policies/test_files.py::test_non_numeric_arrays_are_rejected",
            f"{MANIFESTS}::test_wrongly_typed_values_are_damage",
        ),
    ),
    72: Case(
        "a policy file runs no code",
        (
            f"{TRAIN}::test_loading_a_policy_runs_no_code",
            "tests/motion/formats/test_pickle_arrays.py::test_no_code_is_executed",
        ),
    ),
    73: Case("no network", (f"{LOOP}::test_training_opens_no_network_connection",)),
    # Studies on several machines
    74: Case(
        "a worker of a shared study or search is killed",
        (
            f"{WORKERS}::test_killed_worker_is_replaced_and_results_are_those_of_one",
            f"{WORKERS}::test_programs_of_a_dead_worker_are_taken_over",
            f"{WORKERS}::test_interrupted_trials_do_not_hold_other_searches",
        ),
    ),
}
