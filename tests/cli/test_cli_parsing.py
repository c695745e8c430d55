"""Words in any order and either spelling mean the same, to the program and to ``%%watcher recover``."""

import shlex
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml import options
from watcherml.cli.commands import COMMANDS
from watcherml.cli.main import _split, command_parser
from watcherml.errors import WatcherError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
NAME = st.from_regex(r"[a-z][a-z_.]{0,8}", fullmatch=True)
WHOLE = st.integers(-3, 40).map(str)
NUMBER = st.one_of(WHOLE, st.floats(0, 1e5, allow_nan=False).map(repr))
GUARD = st.one_of(
    st.builds(
        "{}:{}:{}:{}".format,
        NAME, st.sampled_from(["minimize", "maximize"]), st.integers(0, 9), st.integers(0, 3),
    ),
    TEXT,
)  # fmt: skip
BY_TYPE = {int: WHOLE, float: NUMBER, None: st.one_of(NAME, TEXT)}
SPECIAL = {
    "--metric": GUARD,
    "--secret": st.one_of(st.builds("{}=env:{}".format, NAME, st.sampled_from("AB")), TEXT),
    "--despite": st.sampled_from(["C10", "C17"]),
    "--capabilities": st.just("/nowhere/declared.json"),
}


def shared_actions():
    """The flags that the program and the magic take from ``watcherml.options``."""
    parser = options.Parser(add_help=False)
    options.add_entrypoint_flags(parser, required=False)
    options.add_contract_flags(parser)
    options.add_policy_flags(parser)
    return parser._actions


def flag_of(action):
    """One use of a flag: its name and its value, None for a switch."""
    name = action.option_strings[-1]
    if action.nargs == 0:
        return st.just((name, None))
    return st.tuples(st.just(name), SPECIAL.get(name, BY_TYPE[action.type]))


GLOBALS = st.sampled_from([("--quiet", None), ("--no-color", None), ("--data-dir", "somewhere"), ("--format", "json")])
REPEATED = {action.option_strings[-1] for action in shared_actions() if type(action).__name__ == "_AppendAction"}


@st.composite
def uses(draw, extra=GLOBALS):
    """Uses of flags, each once except those that may be repeated."""
    each = st.one_of(*(flag_of(action) for action in shared_actions()), extra)
    chosen = draw(st.lists(each, max_size=9))
    once = {name: (name, value) for name, value in chosen if name not in REPEATED}
    return [*once.values(), *(one for one in chosen if one[0] in REPEATED)]


def spelled(draw, use):
    """One spelling of a use; after a blank argparse takes a word that begins with a dash for a flag."""
    name, value = use
    if value is None:
        return [name]
    return [f"{name}={value}"] if value.startswith("-") or draw(st.booleans()) else [name, value]


@st.composite
def lines(draw):
    """Two command lines that mean the same."""
    plain = draw(uses())
    shuffled = draw(st.permutations(plain))
    order = {name: [one for one in plain if one[0] == name] for name, _ in plain}
    shuffled = [order[name].pop(0) for name, _ in shuffled]  # what is repeated keeps its order
    words = [spelled(draw, use) for use in shuffled]
    front = draw(st.integers(0, len(words)))
    before, after = words[:front], words[front:]
    after.insert(draw(st.integers(0, len(after))), ["RUN"])
    one = ["recover", "RUN", *(f"{name}={value}" if value is not None else name for name, value in plain)]
    return one, [*chain.from_iterable(before), "recover", *chain.from_iterable(after)]


def parsed(words):
    front, name, rest = _split(words)
    assert name == "recover"
    return vars(command_parser(name).parse_args([*front, *rest]))


@settings(deadline=None, max_examples=80)
@given(lines())
def test_order_spelling_and_side_of_the_command_change_nothing(line):
    one, other = line
    assert outcome(parsed, one) == outcome(parsed, other)


def outcome(call, *given):
    try:
        return call(*given)
    except WatcherError as error:
        return type(error), error.as_data()["expected"], error.as_data()["got"], error.as_data()["message"]


def contract_of(values):
    """What a contract and its plan are made of."""
    return (
        outcome(options.requirements, values, 50), outcome(options.budget, values),
        outcome(options.permissions, values), outcome(options.prepare_options, values), values.entrypoint,
    )  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_the_magic_makes_the_same_contract_of_the_same_words(data):
    pytest.importorskip("IPython")
    from watcherml.notebook import recover

    words = list(chain.from_iterable(spelled(data.draw, use) for use in data.draw(uses(extra=st.nothing()))))
    here = outcome(lambda: contract_of(command_parser("recover").parse_args(words)))
    there = outcome(lambda: contract_of(recover.parsed(shlex.join(words))))
    assert here == there


def test_a_flag_takes_a_value_in_every_command_or_in_none_but_one():
    takes = {}
    for name in COMMANDS:
        for action in command_parser(name)._actions:
            for flag in action.option_strings:
                takes.setdefault(flag, {})[name] = action.nargs != 0
    assert [flag for flag, found in takes.items() if len(set(found.values())) > 1] == ["--keep"]
    assert _split(["--keep", "3", "prune"]) == (["--keep", "3"], "prune", [])
    assert _split(["--keep", "demo"]) == (["--keep"], "demo", [])


@pytest.mark.parametrize(
    ("words", "command", "limit"),
    [
        (["--limit", "3", "runs"], "runs", 3),
        (["--limit=3", "--project", "runs", "failures"], "failures", 3),
        (["--quiet", "recoveries", "--limit", "3"], "recoveries", 3),
    ],
    ids=["one", "two", "beside"],
)
def test_a_commands_own_flag_may_stand_before_it(words, command, limit):
    front, name, rest = _split(words)
    assert name == command and command_parser(name).parse_args([*front, *rest]).limit == limit


@pytest.mark.parametrize("name", COMMANDS)
def test_no_flag_is_understood_by_its_beginning(name):
    with pytest.raises(WatcherError, match=r"unrecognized|required"):
        command_parser(name).parse_args(["--quie"])
