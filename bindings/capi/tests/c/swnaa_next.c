/* A server for NAAICE's branch `next`: one function for all requests, which returns an error code. */
#define NAAICE_NEXT
#include <naaice_swnaa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t serve(uint8_t fncode, struct naaice_communication_context *c) {
  uint32_t *words = (uint32_t *)c->mr_local_data[0].addr;
  switch (fncode) {
    case 1:
      words[0]++;
      return 0;
    case 2:
      words[0] = c->immediate;
      words[1] = c->bytes_received;
      words[2] = c->state;
      return 0;
    default:
      return fncode;
  }
}

int main(int argc, char **argv) {
  struct context *ctx;
  if (naaice_swnaa_init_master(&ctx, argc > 1 ? (unsigned short)atoi(argv[1]) : 12345, serve)) {
    fprintf(stderr, "%s\n", naaice_last_error());
    return 1;
  }
  if (ctx->rpc_func != serve) return 2;
  printf("ready\n");
  fflush(stdout);
  for (;;) naaice_swnaa_poll_and_handle_connection_event(ctx);
}
