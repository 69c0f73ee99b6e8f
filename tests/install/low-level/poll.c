/* A program on NAAICE's low level: it drives the connection itself and polls for completions.
 *
 *     poll ADDRESS PORT [ROUNDS]
 *
 * Function 1 adds one to every byte of every region. */
#include <naaice.h>
#include <ulog.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES 5000
#define SCRATCH 4096

static int fail(const char *what) {
    fprintf(stderr, "poll: %s failed\n", what);
    return EXIT_FAILURE;
}

#define TRY(call)              \
    do {                       \
        if ((call) != 0)       \
            return fail(#call); \
    } while (0)

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: poll ADDRESS PORT [ROUNDS]\n");
        return 2;
    }
    const unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 3;
    static unsigned char values[VALUES], seed[64];
    char *params[] = {(char *)seed, (char *)values};
    size_t sizes[] = {sizeof seed, sizeof values};
    size_t internal_sizes[] = {SCRATCH};
    memset(values, 7, sizeof values);
    ulog_info("%u regions to %s", 2u, argv[1]);

    struct naaice_communication_context *ctx = NULL;
    TRY(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 1, internal_sizes, 1, NULL, argv[1],
                                          (uint16_t)atoi(argv[2])));
    ctx->timeout = 20;
    TRY(naaice_setup_connection(ctx));
    if (ctx->state != NAAICE_CONNECTED)
        return fail("connecting");
    TRY(naaice_set_singlesend_mr(ctx, 0));
    TRY(naaice_set_input_mr(ctx, 1));
    TRY(naaice_set_output_mr(ctx, 1));
    TRY(naaice_register_mrs(ctx));

    TRY(naaice_init_mrsp(ctx));
    while (ctx->state < NAAICE_MRSP_DONE)
        TRY(naaice_poll_cq_nonblocking(ctx));
    if (ctx->state != NAAICE_MRSP_DONE)
        return fail("announcing the regions");

    uint8_t user[3] = {1, 2, 3};
    TRY(naaice_set_immediate(ctx, user));
    for (unsigned round = 1; round <= rounds; round++) {
        unsigned long polls = 0;
        TRY(naaice_init_data_transfer(ctx));
        while (ctx->state < NAAICE_FINISHED) {
            TRY(naaice_poll_cq_nonblocking(ctx));
            polls++;
        }
        if (ctx->state != NAAICE_FINISHED || polls == 0 || ctx->bytes_received != sizeof values)
            return fail("a call");
        for (size_t i = 0; i < sizeof values; i++)
            if (ctx->mr_local_data[1].addr[i] != (char)(7 + round))
                return fail("comparing the result");
    }
    TRY(naaice_disconnect_and_cleanup(ctx));
    printf("low level: %u calls right\n", rounds);
    return EXIT_SUCCESS;
}
