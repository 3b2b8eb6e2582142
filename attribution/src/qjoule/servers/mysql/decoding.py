"""What MySQL's and MariaDB's data means."""

from qjoule.contract import Dialect
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.mysql.dialect import LANGUAGE
from qjoule.servers.mysql.startup import change_user, login
from qjoule.servers.mysql.tags import tags_in_attributes

DECODING = Decoding(
    languages={Dialect.MYSQL: LANGUAGE},
    tag_readers={Dialect.ATTRIBUTES: tags_in_attributes},
    startup=login,
    change=change_user,
)
