"""FerretDB: MongoDB's protocol, served by goroutines."""
