from qjoule.cli import main

main()
