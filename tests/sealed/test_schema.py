"""The JSON Schema of a sealed document says what its decoder says."""

import importlib
import json
import pkgutil
import re

import jsonschema
import pytest
from builders import chain, good_trials, plan

import watcherml
from watcherml.api.schema import DOCUMENTS, schema
from watcherml.errors import InvalidRecord, UsageError
from watcherml.sealed.record import fields_of, kinds, later_fields
from watcherml.sealed.schema import parts_of


@pytest.fixture(scope="module")
def documents():
    """Real documents by kind, as their own encoder writes them."""
    one = plan()
    whole = chain(one, good_trials(one))
    parts = [one, one.contract, one.proposals[0], whole, whole.ranking, whole.verdict]
    parts += [whole.trials[0].request, whole.trials[0].result]
    return {part.KIND: json.loads(part.to_json()) for part in parts}


def refused(kind, document):
    """Return whether the schema and the decoder refuse a document."""
    errors = list(jsonschema.Draft202012Validator(schema(kind)).iter_errors(document))
    try:
        DOCUMENTS[kind].from_data(document["value"])
    except InvalidRecord:
        return bool(errors), True
    return bool(errors), False


def test_every_kind_of_document_in_the_package_has_a_schema():
    for module in pkgutil.walk_packages(watcherml.__path__, "watcherml."):
        if not module.name.endswith(("__main__", "demo_char_gpt")):
            try:
                importlib.import_module(module.name)
            except ImportError as error:  # an optional package
                assert "watcherml" not in str(error.name), module.name
    assert {kind for kind, cls in kinds().items() if cls.__module__.startswith("watcherml.")} == set(DOCUMENTS)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_schema_is_valid_and_names_every_field(kind):
    made = schema(kind)
    jsonschema.Draft202012Validator.check_schema(made)
    for name, part in made["$defs"].items():
        assert part["additionalProperties"] is False and set(part["required"]) <= set(part["properties"]), name
    required = [key for key in fields_of(DOCUMENTS[kind]) if key not in later_fields(DOCUMENTS[kind])]
    assert made["$defs"][DOCUMENTS[kind].__name__]["required"] == required
    assert list(made["$defs"][DOCUMENTS[kind].__name__]["properties"]) == list(fields_of(DOCUMENTS[kind]))
    references = set(re.findall(r"#/\$defs/(\w+)", json.dumps(made)))
    assert references == set(made["$defs"]) == set(parts_of(DOCUMENTS[kind]))


def test_real_documents_keep_their_schema(documents):
    assert len(documents) >= 8
    for kind, document in documents.items():
        jsonschema.validate(document, schema(kind), jsonschema.Draft202012Validator)
        assert refused(kind, document) == (False, False)


LIES = {
    "an unknown key": lambda value: value.update(more=1),
    "a missing key": lambda value: value.pop("planner_version"),
    "text for a number": lambda value: value.update(planner_version="1"),
    "a boolean for a number": lambda value: value.update(planner_version=True),
    "null where there is none": lambda value: value.update(planner_version=None),
    "a number below its bound": lambda value: value.update(planner_version=0),
    "a number above its bound": lambda value: value.update(planner_version=10_001),
    "too many entries": lambda value: value.update(proposals=value["proposals"] * 33),
    "another word": lambda value: value["proposals"][0].update(risk="none"),
    "an id of another spelling": lambda value: value["source"].update(run_id="../outside"),
    "an id that ends in a line feed": lambda value: value["source"].update(run_id="run\n"),
    "a digest that is too short": lambda value: value["source"].update(capsule_digest="sha256:00"),
    "text that is too long": lambda value: value["source"].update(phase="x" * 2_001),
    "a key that is not allowed": lambda value: value["proposals"][0].update(environment={"PATH": "/"}),
    "a list for an object": lambda value: value.update(source=[]),
    "an unknown key far inside": lambda value: value["contract"]["budget"].update(max_trial=1),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_the_schema_of_a_plan_refuses_the_decoder_refuses(lie, documents):
    document = json.loads(json.dumps(documents["recovery-plan"]))
    LIES[lie](document["value"])
    assert refused("recovery-plan", document) == (True, True)


@pytest.mark.parametrize(
    "change", [{"kind": "recovery-result"}, {"version": 2}, {"version": True}, {"digest": "md5:00"}, {"signature": ""}]
)
def test_the_envelope_is_part_of_the_schema(change, documents):
    validator = jsonschema.Draft202012Validator(schema("recovery-plan"))
    assert not validator.is_valid({**documents["recovery-plan"], **change})


def test_an_unknown_kind_is_answered_with_the_kinds():
    with pytest.raises(UsageError, match="recovery-plan") as caught:
        schema("plan")
    assert caught.value.exit_code == 2
    assert schema("failure-capsule") == schema("watcherml.failure-capsule")
