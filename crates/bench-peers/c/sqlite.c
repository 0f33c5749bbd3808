/* SQLite in WAL mode: one row for each block of a file. */

#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct peer {
	sqlite3 *db;
	sqlite3_stmt *begin;
	sqlite3_stmt *commit;
	sqlite3_blob *blob;
};

static int step(sqlite3_stmt *statement)
{
	int code = sqlite3_step(statement);

	sqlite3_reset(statement);
	return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
}

void wholly_sqlite_close(struct peer *peer)
{
	if (peer) {
		sqlite3_blob_close(peer->blob);
		sqlite3_finalize(peer->begin);
		sqlite3_finalize(peer->commit);
		sqlite3_close(peer->db);
		free(peer);
	}
}

/* Makes the database `path` with rows 1 to `rows` of `row_bytes` zeros. Returns a code of SQLite; `*result` is set in
   any case. */
int wholly_sqlite_open(const char *path, const char *pragmas, int64_t rows, int row_bytes, struct peer **result)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	sqlite3_stmt *insert = NULL;
	int code;

	*result = peer;
	if (!peer)
		return SQLITE_NOMEM;
	if ((code = sqlite3_open_v2(path, &peer->db,
				    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL)) ||
	    (code = sqlite3_exec(peer->db, pragmas, NULL, NULL, NULL)) ||
	    (code = sqlite3_exec(peer->db, "CREATE TABLE block (id INTEGER PRIMARY KEY, data BLOB)", NULL, NULL, NULL)) ||
	    (code = sqlite3_prepare_v2(peer->db, "BEGIN IMMEDIATE", -1, &peer->begin, NULL)) ||
	    (code = sqlite3_prepare_v2(peer->db, "COMMIT", -1, &peer->commit, NULL)) ||
	    (code = sqlite3_prepare_v2(peer->db, "INSERT INTO block VALUES (?1, zeroblob(?2))", -1, &insert, NULL)))
		return code;
	code = step(peer->begin);
	for (int64_t id = 1; !code && id <= rows; id++) {
		sqlite3_bind_int64(insert, 1, id);
		sqlite3_bind_int(insert, 2, row_bytes);
		code = step(insert);
		/* Now and then, so that the log stays small. */
		if (!code && id % 10000 == 0 && !(code = step(peer->commit)))
			code = step(peer->begin);
	}
	sqlite3_finalize(insert);
	if (!code)
		code = step(peer->commit);
	if (!code)
		code = sqlite3_wal_checkpoint_v2(peer->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	return code;
}

int wholly_sqlite_begin(struct peer *peer)
{
	return step(peer->begin);
}

/* Writes `len` bytes at `offset` of the row `id`, in place of as many. */
int wholly_sqlite_update(struct peer *peer, int64_t id, int offset, const void *data, int len)
{
	int code = peer->blob ? sqlite3_blob_reopen(peer->blob, id)
			      : sqlite3_blob_open(peer->db, "main", "block", "data", id, 1, &peer->blob);

	return code ? code : sqlite3_blob_write(peer->blob, data, len, offset);
}

/* A blob that is open for writing is a statement that has not ended: it must be closed before the commit. */
int wholly_sqlite_commit(struct peer *peer)
{
	int code = sqlite3_blob_close(peer->blob);

	peer->blob = NULL;
	return code ? code : step(peer->commit);
}

/* Copies what the log holds into the database. */
int wholly_sqlite_checkpoint(struct peer *peer)
{
	return sqlite3_wal_checkpoint_v2(peer->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

const char *wholly_sqlite_error(struct peer *peer)
{
	return peer && peer->db ? sqlite3_errmsg(peer->db) : "out of memory";
}

const char *wholly_sqlite_version(void)
{
	return sqlite3_libversion();
}
