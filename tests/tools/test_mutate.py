"""The mutation tool: it makes the mistakes that once went unnoticed, and its excuses still hold."""

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


KNOWN = {
    "algorithms.amp": "experience.obs[AMP_OBS]",
    "algorithms.off_policy.base": "jnp.argmax(td.expected(logits, self.atoms), axis=0)",
    "algorithms.off_policy.dqn": "(target_params['critic'] if config.double else params['critic'])",
    "algorithms.ppo.update": "part._replace(advantage=part.advantage)",
    "learning.prioritized_sampling": "jnp.power(chance.shape[1] * sampled, exponent)",
}


@pytest.mark.parametrize("module", KNOWN)
def test_mistakes_that_went_unnoticed_are_made(mutations, module):
    made = list(mutations.mutants_of(module))
    assert any(KNOWN[module] in mutant.line for mutant in made)
    for mutant in made:
        ast.parse(mutant.source)


def test_every_excuse_fits_a_mutant(mutations):
    for module, reasons in mutations.EQUIVALENT.items():
        diffs = [mutant.diff for mutant in mutations.mutants_of(module)]
        for part in reasons:
            assert any(part in diff for diff in diffs), f"{module} has no mutant {part!r}"
