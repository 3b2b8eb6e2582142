"""What VoltDB's data means."""

from qjoule.contract import Dialect
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.voltdb.dialect import LANGUAGE

DECODING = Decoding(languages={Dialect.VOLTDB: LANGUAGE})
