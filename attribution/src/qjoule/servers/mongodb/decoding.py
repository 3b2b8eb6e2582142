"""What MongoDB's data means."""

from qjoule.contract import Dialect
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.mongodb.dialect import LANGUAGE
from qjoule.servers.mongodb.dialect_cursors import Cursors
from qjoule.servers.mongodb.startup import hello

DECODING = Decoding(languages={Dialect.MONGODB: LANGUAGE}, references=Cursors, startup=hello)
