"""The public shapes of secrets, and what tells a secret from a word, a number or a digest.

A rule has words of which one must be in the text before its pattern is even compiled: most texts hold none of them,
and importing this costs nothing. Every quantifier is bounded or runs over characters that cannot start the rest of its
pattern, so that the time is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

# What stands before a key: anything but a letter or digit, or a line break that is spelled out (a repr of a text).
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


@dataclass(frozen=True)
class Rule:
    """One shape. ``words`` are lower case; the group ``s`` of ``shape`` is the secret, else the whole match is."""

    kind: str
    words: tuple[str, ...]
    shape: str
    holds: Callable[[str], bool] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled shape."""
        return _compiled(self.shape)


@functools.cache
def _compiled(shape: str) -> re.Pattern[str]:
    return re.compile(shape)


_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MACHINE_CHARACTERS = re.compile(r"[A-Za-z0-9+/=_.~%-]+")
_PLAIN_PART = re.compile(r"[A-Za-z]?[a-z]*|[A-Z]+|[0-9]+|.{0,2}|[A-Za-z]?[a-z]{2,}[0-9]{1,3}[a-z]?")
_HEX = re.compile(r"(?:[0-9a-f]{7,128}|[0-9A-F]{7,128})")
_UUID = re.compile(r"(?i)\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?")
_SHOWN_TO_JUDGE = 200  # characters of a long value that are looked at


def is_random(value: str, least: int = 16) -> bool:
    """Tell whether a text looks made by a machine: letters and digits that change places too often for words."""
    if len(value) < least or not _MACHINE_CHARACTERS.fullmatch(value[:_SHOWN_TO_JUDGE]):
        return False
    runs = _TOKENS.findall(value[:_SHOWN_TO_JUDGE])
    letters = sum(len(run) for run in runs if not run.isdigit())
    digits = sum(len(run) for run in runs if run.isdigit())
    # In a random text of letters of one case and digits a run is 2.5 characters long, in words with numbers 3 and more.
    return digits >= 2 and letters >= 2 and (letters + digits) < 3 * len(runs) and not is_wordy(value)


def is_wordy(value: str) -> bool:
    """Tell whether a text is words, numbers and abbreviations between separators, as names of models are."""
    parts = [part for part in re.split(r"[-._/:+ ]", value[:_SHOWN_TO_JUDGE]) if part]
    plain = sum(len(part) for part in parts if len(part) <= 15 and _PLAIN_PART.fullmatch(part))
    return len(parts) >= 2 and plain >= 0.6 * sum(map(len, parts))


def is_plain_word(value: str) -> bool:
    """Tell whether a text is one word with or without a number behind it, as in ``resnet50``."""
    return _PLAIN_PART.fullmatch(value) is not None


def is_digest(value: str) -> bool:
    """Tell whether a text is a hash, a commit or a UUID."""
    bare = value.partition(":")[2] if value.startswith(("sha256:", "sha1:", "md5:")) else value
    return bool(_HEX.fullmatch(bare) or _UUID.fullmatch(bare))


def _not_words(value: str) -> bool:
    # `sk-` also begins the names of packages.
    return not is_wordy(re.sub(r"^[a-z]{2,5}-(?:[a-z]{2,8}-(?:v1-)?)?", "", value))


def _has_digit(value: str) -> bool:
    return len(value) >= 24 or any(char.isdigit() for char in value)


def _random(value: str) -> bool:
    return is_random(value, 10)


def _is_no_example(value: str) -> bool:
    return value.lower() not in ("password", "passwd", "pass", "pwd", "pw")


def is_basic_auth(value: str) -> bool:
    """Tell whether base64 text is a name and a password with a colon between them."""
    try:
        found = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return False
    return ":" in found and found.isprintable()


def _mixed(value: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(test(char) for char in value) for test in kinds)


def _key(kind: str, words: str, body: str, holds: Callable[[str], bool] | None = None) -> Rule:
    return Rule(kind, tuple(words.split()), _EDGE + body, holds)


KEYS = (
    _key("anthropic_key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    _key("openai_key", "sk-", r"sk-[A-Za-z0-9_-]{20,}", _not_words),
    _key("huggingface_token", "hf_ api_org_", r"(?:hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,})"),
    _key("github_token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
         r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    _key("gitlab_token", "glpat- gldt- glrt- glcbt- glptt- glsoat- glft- glimt- glagent-",
         r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent)-[A-Za-z0-9_.-]{20,}"),
    _key("aws_access_key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _key("google_api_key", "aiza", r"AIza[A-Za-z0-9_-]{35}"),
    _key("google_oauth", "gocspx- ya29. 1//0",
         r"(?:GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{30,})"),
    _key("azure_key", "accountkey sharedaccesskey",
         r"(?i:AccountKey|SharedAccessKey)=(?P<s>[A-Za-z0-9+/]{40,}={0,2})"),
    _key("azure_sas", "sig=", r"sig=(?P<s>[A-Za-z0-9%+/]{20,}={0,2})", _has_digit),
    _key("azure_client_secret", "8q~ 7q~", r"[A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.-]{31,34}"),
    _key("slack_token", "xox xapp-", r"(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})"),
    _key("slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/(?P<s>[A-Za-z0-9+/_-]{20,})"),
    _key("stripe_key", "_live_ _test_ whsec_",
         r"(?:[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=_-]{20,})"),
    _key("twilio_key", "sk", r"SK[0-9a-f]{32}(?![0-9a-f])"),
    _key("sendgrid_key", "sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _key("mailgun_key", "key-", r"key-[0-9a-f]{32}(?![0-9a-f])"),
    _key("mailchimp_key", "-us", r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])"),
    _key("npm_token", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    _key("pypi_token", "pypi-ag", r"pypi-Ag[A-Za-z0-9_-]{30,}"),
    _key("wandb_key", "wandb_v1_", r"wandb_v1_[A-Za-z0-9_]{20,}"),
    _key("wandb_key", "wandb",
         r"(?i:wandb)(?:[ .]login\b[^\n]{0,40}?|[\"']?[ \t]{0,3}[:=,][ \t]{0,3}[\"']?)(?<![0-9a-f])(?P<s>[0-9a-f]{40})"
         r"(?![0-9a-f])"),
    _key("kaggle_key", "username kgat_",
         r"(?:KGAT_[0-9a-f]{32}|\\?[\"']username\\?[\"']\s{0,4}:\s{0,4}\\?[\"'][^\"'\s\\]{1,100}\\?[\"']\s{0,4},"
         r"\s{0,20}\\?[\"']key\\?[\"']\s{0,4}:\s{0,4}\\?[\"'](?P<s>[0-9a-f]{32})(?![0-9a-f]))"),
    _key("databricks_token", "dapi", r"dapi[0-9a-f]{32}(?:-[0-9])?(?![0-9a-f])"),
    _key("replicate_token", "r8_", r"r8_[A-Za-z0-9]{30,}"),
    _key("discord_token", ".", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}(?![.(])", _mixed),
    _key("discord_webhook", "api/webhooks/", r"discord(?:app)?\.com/api/webhooks/[0-9]{5,}/(?P<s>[A-Za-z0-9_-]{40,})"),
    _key("telegram_token", ":aa", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}"),
    Rule("telegram_token", ("/bot",), r"/bot(?P<s>[0-9]{8,10}:AA[A-Za-z0-9_-]{32,})"),
    # A Neptune token is one part: base64 of JSON.
    _key("jwt", "eyj", r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]{5,})?"),
    _key("neptune_token", "eyjhcglf", r"eyJhcGlf[A-Za-z0-9+/=_-]{20,}"),
    _key("docker_token", "dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    _key("groq_key", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    _key("xai_key", "xai-", r"xai-[A-Za-z0-9]{20,}"),
    _key("nvidia_key", "nvapi-", r"nvapi-[A-Za-z0-9_-]{20,}"),
    _key("perplexity_key", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    _key("langsmith_key", "lsv2_", r"lsv2_[a-z]{2}_[0-9a-f]{32}(?:_[0-9a-f]{6,12})?"),
    _key("pinecone_key", "pcsk_", r"pcsk_[A-Za-z0-9_]{30,}"),
    _key("tavily_key", "tvly-", r"tvly-[A-Za-z0-9-]{20,}", _not_words),
    _key("notion_token", "secret_ ntn_", r"(?:secret_[A-Za-z0-9]{40,}|ntn_[A-Za-z0-9]{30,})"),
    _key("linear_key", "lin_api_", r"lin_api_[A-Za-z0-9]{20,}"),
    _key("digitalocean_token", "_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _key("vault_token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{20,}", _has_digit),
    _key("sentry_token", "sntr", r"sntr[ysu]_[A-Za-z0-9+/=_-]{20,}"),
    _key("grafana_token", "glc_ glsa_", r"(?:glc|glsa)_[A-Za-z0-9+/=_-]{20,}"),
    _key("shopify_token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _key("supabase_token", "sbp_", r"sbp_[0-9a-f]{40}"),
    _key("postman_key", "pmak-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _key("rubygems_key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    _key("atlassian_token", "atatt3", r"ATATT3[A-Za-z0-9_=-]{40,}"),
    _key("doppler_token", "dp.", r"dp\.[a-z]{2,7}\.[A-Za-z0-9]{30,}"),
    _key("age_key", "age-secret-key-1", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
)  # fmt: skip

# A part of a URL's address that ends in a host; the password may hold an @ itself.
_USER = r"[^\s/:@\"'<>?#]"
_PASSWORD = r"[^\s/\"'<>?#]"
_PARAMETERS = (
    r"(?:access_?token|refresh_?token|id_?token|auth_?token|session_?token|api_?key|password|passwd|pwd|secret"
    r"|client_?secret|signature|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature"
    r"|x-goog-credential|jwt)"
)
_PARAMETER_ENDS = "token key password passwd pwd secret signature credential jwt"
PLACES = (
    Rule("url_password", ("://",), rf"://{_USER}{{0,200}}:(?P<s>{_PASSWORD}{{1,500}})@(?=[^\s@])", _is_no_example),
    Rule("url_token", ("://",), r"://(?P<s>[A-Za-z0-9_.~-]{16,200})@(?=[A-Za-z0-9[])", is_random),
    Rule("url_parameter", tuple(f"{word}=" for word in _PARAMETER_ENDS.split()),
         rf"(?i)[?&;]{_PARAMETERS}=(?P<s>[^\s&#\"'<>;,)\]}}]{{6,4000}})"),
    Rule("url_parameter", ("token=", "key=", "auth=", "sig=", "hmac="),
         r"(?i)[?&;](?:token|key|auth|sig|hmac)=(?P<s>[^\s&#\"'<>;,)\]}]{8,4000})", _random),
    Rule("bearer_token", ("bearer",), r"(?i)\bbearer[ \t]{1,4}(?P<s>[A-Za-z0-9._~+/=-]{8,8000})", _has_digit),
    Rule("authorization", ("authorization",),
         r"(?i)\bauthorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?(?:bearer|basic|token|digest|apikey|api-key"
         r"|key|bot|ssws|sso-key|geniekey|splunk|client-id)[ \t=]{1,4}(?P<s>[^\s\"'\\,;<>]{4,8000})"),
    Rule("basic_auth", ("basic",), r"\bBasic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{8,2000}={0,2})", is_basic_auth),
    Rule("docker_auth", ("auth",),
         r"\\?[\"'](?:auth|_auth|identitytoken)\\?[\"'][ \t]{0,4}:[ \t]{0,4}\\?[\"'](?P<s>[A-Za-z0-9+/]{8,2000}={0,2})",
         is_basic_auth),
    Rule("cookie", ("cookie",), r"(?im)^[ \t>*<]{0,4}(?:set-)?cookie:[ \t]{0,4}(?P<s>[^\s][^\r\n]{7,})"),
    # In a literal, as an entry of a mapping or one header: ends where the quotes do.
    Rule("cookie", ("cookie",),
         r"(?i)[\"'](?:set-)?cookie\\?[\"']?[ \t]{0,4}[:,][ \t]{0,4}[rbf]{0,2}\\?[\"']?"
         r"(?P<s>[^\s\"'\\=]{1,200}=[^\r\n\"'\\]{4,4000})"),
    # A line of ~/.pgpass: host:port:database:user:password.
    Rule("pgpass", (":5432:", ":5433:", ":6432:", ":*:"),
         r"(?m)^[ \t>+-]{0,8}[A-Za-z0-9_.*-]{1,100}:(?:5432|5433|6432|\*):[^\s:]{1,63}:[^\s:]{1,63}:"
         r"(?P<s>[^\s*]\S{0,199})[ \t]{0,8}$", _is_no_example),
)  # fmt: skip
# These look across lines.
NETRC = Rule(
    "netrc", ("password",),
    r"(?:\bmachine\s{1,8}\S{1,200}\s{1,8}(?:login\s{1,8}\S{1,200}\s{1,8})?|\bdefault\s{1,8}login"
    r"\s{1,8}\S{1,200}\s{1,8})password\s{1,8}(?P<s>\S{1,500})",
)  # fmt: skip
AWS_ID = next(rule for rule in KEYS if rule.kind == "aws_access_key")
# 40 characters of base64 within this distance of an AWS key id are its secret.
AWS_NEAR = 300
AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def is_aws_secret(value: str) -> bool:
    """Tell whether 40 characters are the secret half of an AWS key, not a path or a commit."""
    return _mixed(value)
