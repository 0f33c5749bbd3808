/* libpmemobj: a pool with one object for each file, and transactions over ranges of them. */

#include <errno.h>
#include <libpmemobj.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct peer {
	PMEMobjpool *pool;
	uint32_t files;
	char *file[];
};

static int zero(PMEMobjpool *pool, void *object, void *size)
{
	pmemobj_memset_persist(pool, object, 0, *(size_t *)size);
	return 0;
}

void wholly_pmemobj_close(struct peer *peer)
{
	if (peer) {
		if (peer->pool)
			pmemobj_close(peer->pool);
		free(peer);
	}
}

/* Makes the pool `path` of `pool_bytes` with `files` objects of `file_bytes` zeros. Returns 0 or an errno. */
int wholly_pmemobj_open(const char *path, uint64_t pool_bytes, uint32_t files, uint64_t file_bytes,
                        struct peer **result)
{
	struct peer *peer = calloc(1, sizeof(*peer) + files * sizeof(char *));
	size_t size = file_bytes;
	PMEMoid object;

	if (!peer)
		return ENOMEM;
	peer->files = files;
	peer->pool = pmemobj_create(path, "wholly-bench", pool_bytes, 0600);
	if (!peer->pool)
		goto failed;
	for (uint32_t i = 0; i < files; i++) {
		if (pmemobj_alloc(peer->pool, &object, file_bytes, 1, zero, &size))
			goto failed;
		peer->file[i] = pmemobj_direct(object);
	}
	*result = peer;
	return 0;
failed:
	wholly_pmemobj_close(peer);
	return errno ? errno : EIO;
}

/* One transaction. */
int wholly_pmemobj_begin(struct peer *peer)
{
	return pmemobj_tx_begin(peer->pool, NULL, TX_PARAM_NONE);
}

/* What TX_MEMCPY does: the range into the undo log, then the new bytes; commit flushes the range. */
int wholly_pmemobj_update(struct peer *peer, uint32_t file, uint64_t offset, const void *data, uint64_t len)
{
	char *to = peer->file[file] + offset;
	int error = pmemobj_tx_add_range_direct(to, len);

	if (!error)
		memcpy(to, data, len);
	return error;
}

/* Commits, unless an update has aborted the transaction. */
int wholly_pmemobj_end(void)
{
	if (pmemobj_tx_stage() == TX_STAGE_WORK)
		pmemobj_tx_commit();
	return pmemobj_tx_end();
}

const char *wholly_pmemobj_error(void)
{
	return pmemobj_errormsg();
}
