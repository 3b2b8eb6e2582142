from qjoule.start import main

main()
