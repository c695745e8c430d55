"""Every error that WatcherML raises on purpose, in one tree.

::

    WatcherError                 exit 1   base: message, code, expected, got, remedy
    ├── InvalidValue (ValueError)    1    a value breaks its type, bound or rule
    │   ├── InvalidRecord            1    a sealed document does not decode
    │   ├── InvalidConfig            1    a configuration cannot serve as a baseline
    │   ├── InvalidEntrypoint        1    a training entrypoint cannot be used
    │   └── UsageError               2    a command or magic was called wrongly
    ├── NotFound (LookupError)       3    no such run, capsule, campaign or proposal
    ├── StoreError                   1    the store cannot be read or written
    │   ├── NotAStore                1    the file is something else, or damaged
    │   ├── DamagedRow               1    a row of the store holds what nobody wrote there
    │   └── NewerStore               1    a later version of WatcherML wrote it
    ├── TrustError                   1    a claim is not backed by what is on record
    │   ├── NotOnRecord              1    nobody prepared this in this store
    │   ├── NotAuthorized            1    approval is missing or bound to something else
    │   └── BindingError             1    parts of one chain name different parents
    ├── RecoveryRefused              1    this failure cannot be recovered by trials
    ├── CampaignError                1    a campaign is in the wrong state for the call
    ├── MissingDependency (ImportError) 1 an optional package is needed
    ├── DeviceError                  1    the simulated device cannot be used here
    ├── RunError                     1    a run is in the wrong state for the call
    └── Declined                     5    a person said no, or nobody could be asked

``SimulatedOutOfMemoryError`` stands outside the tree: it is a ``torch.OutOfMemoryError``, so that
training code meets it exactly as it would meet the real one (see ``watcherml.simulated.error``).
"""

from __future__ import annotations


class WatcherError(Exception):
    """Base of all errors of this package.

    ``code`` is a stable word for programs; ``expected``, ``got`` and ``remedy`` are sentences or values
    for people and may be empty; ``exit_code`` is what the command line ends with.
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, expected: str = "", got: str = "", remedy: str = "") -> None:
        self.message = _short(message)
        self.expected = _short(expected)
        self.got = _short(got)
        self.remedy = _short(remedy)
        super().__init__(self.message)

    def __str__(self) -> str:
        text = self.message
        if self.expected:
            text += f": expected {self.expected}"
        if self.got:
            text += f"{'; ' if self.expected else ': '}got {self.got}"
        if self.remedy:
            text += f". {self.remedy}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.expected, self.got, self.remedy)

    def as_data(self) -> dict[str, str]:
        """Return the error as plain strings under stable keys, for ``--format json``."""
        return {
            "code": self.code,
            "message": self.message,
            "expected": self.expected,
            "got": self.got,
            "remedy": self.remedy,
        }


# A key or value of somebody's document may have megabytes; what a person reads has not.
_MOST_CHARACTERS = 2_000


def _short(text: str) -> str:
    text = text if isinstance(text, str) else repr(text)  # out of a damaged store may come anything
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 201]}…{text[-200:]}"


def _rebuild(kind: type[WatcherError], message: str, expected: str, got: str, remedy: str) -> WatcherError:
    return kind(message, expected=expected, got=got, remedy=remedy)


class InvalidValue(WatcherError, ValueError):
    """A value breaks its type, bound or rule; the message starts with the field's path."""

    code = "invalid_value"


class InvalidRecord(InvalidValue):
    """A sealed document does not decode: unknown, missing or repeated key, wrong type, wrong digest."""

    code = "invalid_record"


class InvalidConfig(InvalidValue):
    """A configuration cannot serve as the baseline of a recovery."""

    code = "invalid_config"


class InvalidEntrypoint(InvalidValue):
    """A training entrypoint is misspelled, cannot be imported, or has the wrong signature."""

    code = "invalid_entrypoint"


class UsageError(InvalidValue):
    """A command or magic was called with flags that do not parse or contradict each other."""

    code = "usage"
    exit_code = 2


class NotFound(WatcherError, LookupError):
    """No run, capsule, campaign or proposal has this id in this store."""

    code = "not_found"
    exit_code = 3


class StoreError(WatcherError):
    """The store cannot be opened, read or written."""

    code = "store"


class NotAStore(StoreError):
    """The database file is damaged or belongs to another program."""

    code = "not_a_store"


class DamagedRow(StoreError):
    """A column of one row of the store holds what no version of WatcherML wrote there; the other rows can be read."""

    code = "damaged_row"


class NewerStore(StoreError):
    """The store was written by a later version of WatcherML."""

    code = "newer_store"


class TrustError(WatcherError):
    """A claim is not backed by what this store has on record."""

    code = "trust"


class NotOnRecord(TrustError):
    """A plan, authorization or trial was not made in this store."""

    code = "not_on_record"


class NotAuthorized(TrustError):
    """An approval is missing, outside the campaign's permissions, or bound to another proposal."""

    code = "not_authorized"


class BindingError(TrustError):
    """Two parts of one chain name different parents."""

    code = "binding"


class RecoveryRefused(WatcherError):
    """The failure is of a kind that trials cannot recover."""

    code = "recovery_refused"


class CampaignError(WatcherError):
    """A campaign is in the wrong state for what was asked of it."""

    code = "campaign"


class MissingDependency(WatcherError, ImportError):
    """An optional package is needed for what was asked; the remedy is its install command."""

    code = "missing_dependency"


class DeviceError(WatcherError):
    """The simulated device cannot be used here, or was asked for something it cannot do."""

    code = "device"


class RunError(WatcherError):
    """A run is in the wrong state for what was asked of it."""

    code = "run"


class Declined(WatcherError):
    """A person said no, or a question needed an answer and nobody could be asked."""

    code = "declined"
    exit_code = 5
