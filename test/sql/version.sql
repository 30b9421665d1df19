-- the loaded library is the one that the catalog says is installed
SELECT udb.version() = extversion AS same FROM pg_extension WHERE extname = 'udb';
SELECT udb.version() ~ '^[0-9]+\.[0-9]+$' AS well_formed;
