# SPDX-License-Identifier: Apache-2.0
from qjoule.start import main

main()
