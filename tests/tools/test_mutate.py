"""The mutation tool generates known mutants, and its list of equivalent mutants is current."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "mutations.py"


@pytest.fixture(scope="module")
def mutations():
    spec = importlib.util.spec_from_file_location("mutations", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("mutations", None)


# Mutants that survived before a test for them was written.
KNOWN = {
    "algorithms.amp": "experience.obs[AMP_OBS]",
    "algorithms.off_policy.base": "jnp.argmax(td.expected(logits, self.atoms), axis=0)",
    "algorithms.off_policy.dqn": "(target_params['critic'] if config.double else params['critic'])",
    "algorithms.ppo.update": "part._replace(advantage=part.advantage)",
    "learning.prioritized_sampling": "jnp.power(probs.shape[1] * sampled, exponent)",
}


@pytest.mark.parametrize("module", KNOWN)
def test_former_survivors_are_generated(mutations, module):
    mutants = list(mutations.mutants_of(module))
    assert any(KNOWN[module] in mutant.line for mutant in mutants)
    for mutant in mutants:
        ast.parse(mutant.source)


def test_every_equivalent_entry_matches_a_mutant(mutations):
    for module, reasons in mutations.EQUIVALENT.items():
        diffs = [mutant.diff for mutant in mutations.mutants_of(module)]
        for part in reasons:
            assert any(part in diff for diff in diffs), f"{module} has no mutant {part!r}"
