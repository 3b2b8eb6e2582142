# SPDX-License-Identifier: Apache-2.0
"""The agent's profile of each minute, sent by OTLP's signal profiles.

OpenTelemetry's SDK has no exporter for it, as the signal is in development. Settings are those of
the other signals: OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT, ..._HEADERS and ..._CERTIFICATE.
"""

from __future__ import annotations

from qjoule.errors import QjouleError
from qjoule.export.otlp import otlp_profiles
from qjoule.export.pprof import read_pprof
from qjoule.export.profile import Profile
from qjoule.push.otlp import NOT_INSTALLED, TIMEOUT_S, quiet_session, setting

SIGNAL = "profiles"


class Profiles:
    """`host`: the resource's `host.name`; `url`: the receiver's. Raises QjouleError: what is needed
    is not installed.
    """

    def __init__(self, host: str, url: str) -> None:
        try:
            from opentelemetry.util.re import parse_env_headers  # noqa: PLC0415 (optional)
        except ImportError:
            raise QjouleError(NOT_INSTALLED) from None
        otlp_profiles(Profile("", host, 0, 0, (), (), ()))  # fails at once without the messages
        self._host, self._url = host, url
        self._session = quiet_session()
        self._session.headers.update(parse_env_headers(setting(SIGNAL, "HEADERS"), liberal=True))
        self._session.headers["Content-Type"] = "application/x-protobuf"
        self._session.verify = setting(SIGNAL, "CERTIFICATE") or True

    def read(self, content: bytes) -> tuple[float, Profile]:
        """The Unix time at which the agent's profile begins, and the profile. Raises `ValueError`
        or `LookupError`: it is none.
        """
        profile = read_pprof(content, self._host)
        return profile.began_unix_ns / 1e9, profile

    def send(self, profile: Profile, _unix_s: float) -> bool:
        """Returns whether the receiver took the profile."""
        try:
            answer = self._session.post(
                self._url, otlp_profiles(profile), timeout=TIMEOUT_S, allow_redirects=False
            )
        except Exception:  # of requests or urllib3: none may end the process
            return False
        return 200 <= int(answer.status_code) < 300
