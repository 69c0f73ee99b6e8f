/* A server on NAAICE's software accelerator: server PORT; ends at SIGTERM. Its function is in kernels.c, or in the dialect of
 * NAAICE's branch `next` here. Function 42 adds 5 to every byte of the second region. */
#include <naaice_swnaa.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t ended;

static void on_signal(int number) {
    (void)number;
    ended = 1;
}

#ifdef NAAICE_NEXT
static uint8_t call(uint8_t fncode, struct naaice_communication_context *ctx) {
    if (fncode != 42)
        return 0x10;
    for (size_t i = 0; i < ctx->mr_local_data[1].size; i++)
        ctx->mr_local_data[1].addr[i] += 5;
    return 0;
}
#define INIT_MASTER(ctx, port) naaice_swnaa_init_master(ctx, port, call)
#else
#define INIT_MASTER(ctx, port) naaice_swnaa_init_master(ctx, port)
#endif

int main(int argc, char **argv) {
    struct context *ctx = NULL;
    signal(SIGTERM, on_signal);
    if (INIT_MASTER(&ctx, (uint16_t)(argc > 1 ? atoi(argv[1]) : SERVER_CONNECTION_PORT)) != 0) {
        fprintf(stderr, "server: naaice_swnaa_init_master failed\n");
        return EXIT_FAILURE;
    }
    puts("serving");
    fflush(stdout);
    while (!ended)
        naaice_swnaa_poll_and_handle_connection_event(ctx);
    printf("server: %u connections\n", (unsigned)ctx->total_connections_lifetime);
    return EXIT_SUCCESS;
}
