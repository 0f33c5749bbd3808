/* Moves 30 from one account to the other and leaves a receipt: all three files change, or none does.
 *
 *   cc transfer.c $(pkg-config --cflags --libs wholly) -o transfer
 *   ./transfer DIR      # a directory with the files alice and bob
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <wholly.h>

static int transfer(wholly_store *store)
{
    wholly_file *alice = NULL, *bob = NULL, *receipt = NULL;
    wholly_group *group = NULL;
    int error;

    if ((error = wholly_store_open_file(store, "alice", &alice)) == 0 &&
        (error = wholly_store_open_file(store, "bob", &bob)) == 0 &&
        (error = wholly_store_begin(store, &group)) == 0 &&
        (error = wholly_group_write(group, alice, 0, "balance  70\n", 12)) == 0 &&
        (error = wholly_group_write(group, bob, 0, "balance 130\n", 12)) == 0 &&
        (error = wholly_group_create(group, "receipt", 0640, &receipt)) == 0 &&
        (error = wholly_group_write(group, receipt, 0, "alice gave bob 30\n", 18)) == 0) {
        error = wholly_group_commit(group); /* survives from here on; the handle is gone */
        group = NULL;
    }
    if (error)
        fprintf(stderr, "transfer: %s\n", wholly_error_text());
    if (group)
        wholly_group_abort(group); /* nothing has happened */
    if (alice)
        wholly_file_close(alice);
    if (bob)
        wholly_file_close(bob);
    if (receipt)
        wholly_file_close(receipt);
    return error;
}

int main(int argc, char **argv)
{
    wholly_store *store;
    int error, closed;

    if (argc != 2)
        return 2;
    error = wholly_store_init(argv[1], NULL); /* once; or `wholly init DIR` */
    if (error == 0 || error == -EEXIST)
        error = wholly_store_open(argv[1], NULL, &store); /* recovers, if there was a crash */
    if (error) {
        fprintf(stderr, "transfer: %s\n", wholly_error_text());
        return 1;
    }
    error = transfer(store);
    closed = wholly_store_close(store); /* everything is home: the log is empty */
    if (closed)
        fprintf(stderr, "transfer: %s\n", wholly_error_text());
    return error || closed ? 1 : 0;
}
