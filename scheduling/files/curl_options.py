"""What is known of curl's options: which take a value, which say only what is printed, which refuse a command."""

_NO_SECRETS = "secrets do not belong into schedules, where everybody who may read schedules sees them"
SECRET_IN_URL = f"The URL holds a user and perhaps a password: {_NO_SECRETS}."
_FILES = "it reads or writes files, which are not carried over"
_CHECKED = "certificates are always checked, against the public authorities"
_NETWORK = "how the connection is made cannot be chosen"

SHORT = {
    "X": "--request", "H": "--header", "d": "--data", "G": "--get", "I": "--head", "u": "--user", "m": "--max-time",
    "A": "--user-agent", "e": "--referer", "b": "--cookie", "c": "--cookie-jar", "o": "--output",
    "O": "--remote-name", "D": "--dump-header", "w": "--write-out", "s": "--silent", "S": "--show-error",
    "f": "--fail", "L": "--location", "v": "--verbose", "i": "--include", "N": "--no-buffer", "#": "--progress-bar",
    "q": "--disable", "k": "--insecure", "g": "--globoff", "F": "--form", "T": "--upload-file", "K": "--config",
    "n": "--netrc", "x": "--proxy", "U": "--proxy-user", "E": "--cert", "4": "--ipv4", "6": "--ipv6",
    "Z": "--parallel", ":": "--next", "J": "--remote-header-name", "0": "--http1.0", "C": "--continue-at",
    "r": "--range", "z": "--time-cond", "y": "--speed-time", "Y": "--speed-limit",
}  # fmt: skip

FLAGS = frozenset(
    {
        "--get", "--head", "--globoff", "--silent", "--show-error", "--fail", "--fail-with-body", "--fail-early",
        "--location", "--location-trusted", "--verbose", "--include", "--no-buffer", "--progress-bar", "--disable",
        "--no-progress-meter", "--no-silent", "--no-keepalive", "--compressed", "--http1.1", "--http2", "--tcp-nodelay",
        "--retry-connrefused", "--styled-output", "--no-styled-output", "--tlsv1.2",
    }
)  # fmt: skip

WITH_VALUE = frozenset(
    {
        "--request", "--url", "--header", "--user-agent", "--referer", "--data", "--data-ascii", "--data-binary",
        "--data-raw", "--data-urlencode", "--json", "--output", "--dump-header", "--stderr", "--max-time", "--retry",
        "--retry-delay", "--retry-max-time", "--write-out", "--connect-timeout", "--max-redirs", "--keepalive-time",
    }
)  # fmt: skip

TOLD = {
    "--location": "redirects are not followed; an answer of 3xx is a failure.",
    "--location-trusted": "redirects are not followed; an answer of 3xx is a failure.",
    "--connect-timeout": "left out; --max-time is the one limit there is.",
    "--compressed": "left out; answers are not asked for compressed.",
    "--http2": "left out.",
    "--tlsv1.2": "left out.",
}

REFUSED = {
    "--user": f"{_NO_SECRETS}.",
    "--oauth2-bearer": f"{_NO_SECRETS}.",
    "--netrc": f"{_NO_SECRETS}.",
    "--netrc-file": f"{_NO_SECRETS}.",
    "--cookie": f"{_NO_SECRETS}.",
    "--proxy-user": f"{_NO_SECRETS}.",
    "--aws-sigv4": f"{_NO_SECRETS}.",
    "--cookie-jar": f"{_FILES}.",
    "--remote-name": f"{_FILES}.",
    "--remote-header-name": f"{_FILES}.",
    "--upload-file": f"{_FILES}.",
    "--config": f"{_FILES}.",
    "--form": "forms in parts are not carried over; bodies are JSON.",
    "--form-string": "forms in parts are not carried over; bodies are JSON.",
    "--insecure": f"{_CHECKED}.",
    "--cacert": f"{_CHECKED}.",
    "--capath": f"{_CHECKED}.",
    "--cert": f"{_CHECKED}, and no client certificate is sent.",
    "--key": f"{_CHECKED}, and no client certificate is sent.",
    "--proxy": f"{_NETWORK}.",
    "--resolve": f"{_NETWORK}.",
    "--connect-to": f"{_NETWORK}.",
    "--interface": f"{_NETWORK}.",
    "--unix-socket": f"{_NETWORK}.",
    "--ipv4": f"{_NETWORK}.",
    "--ipv6": f"{_NETWORK}.",
    "--next": "it makes several calls: write a line for each.",
    "--parallel": "it makes several calls: write a line for each.",
    "--retry-all-errors": "what is retried beside the usual is named by retryable_statuses, in a `# chronos:` comment.",
}
