# SPDX-License-Identifier: Apache-2.0
"""The packaged alerts on made-up series, by Prometheus's own tool: each fires on its fault alone.

It needs no root. It needs Prometheus, as test_dashboards.py does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tracing.prometheus import promtool

pytestmark = pytest.mark.server

RULES = Path(__file__).parents[3] / "packaging/monitoring/rules.yml"
CASES = Path(__file__).parents[2] / "support/tracing/alerts.yml"


def test_each_alert_fires_on_its_fault(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    text = RULES.read_text()
    assert "offset 1w" in text
    rules.write_text(text.replace("offset 1w", "offset 2h").replace("[1w]", "[2h]"))
    cases = yaml.safe_load(CASES.read_text()) | {"rule_files": [str(rules)]}
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(cases))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alerts.yml")
