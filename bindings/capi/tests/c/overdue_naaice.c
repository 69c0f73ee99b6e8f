/* naaice.h and calls that do not end in time: ADDRESS PORT slow|limited|nonsense|unreachable */
#define _DEFAULT_SOURCE
#include <naaice.h>
#include <naaice_ap2.h>

#include <string.h>

#include "naaice_check.h"

#define SLEEP 100

static char data[8];
static char *params[1] = {data};
static size_t sizes[1] = {8};

static struct naaice_communication_context *created(char **argv) {
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 1, 0, NULL, SLEEP, NULL, argv[1],
                                          (uint16_t)atoi(argv[2])) == 0);
  return ctx;
}

static struct naaice_communication_context *calling(char **argv, unsigned int ms) {
  uint8_t user[3] = {(uint8_t)ms, (uint8_t)(ms >> 8), (uint8_t)(ms >> 16)};
  struct naaice_communication_context *ctx = created(argv);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_register_mrs(ctx) == 0);
  CHECK(naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 0) == 0 && naaice_do_mrsp(ctx) == 0);
  CHECK(naaice_set_immediate(ctx, user) == 0 && naaice_init_data_transfer(ctx) == 0);
  return ctx;
}

static int polled(struct naaice_communication_context *ctx) {
  while (ctx->state < NAAICE_FINISHED) {
    if (naaice_poll_cq_nonblocking(ctx) != 0) {
      return -1;
    }
  }
  return 0;
}

static void slow(char **argv) {
  struct naaice_communication_context *ctx = calling(argv, 11500);
  CHECK(polled(ctx) == 0 && ctx->state == NAAICE_FINISHED);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
}

/* With NAA_TIMEOUT=0.5. */
static void limited(char **argv) {
  int (*const waits[])(struct naaice_communication_context *) = {polled, naaice_poll_cq_blocking, naaice_poll_cq_busy};
  struct naaice_communication_context *ctx;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    ctx = calling(argv, 3000);
    REFUSED(waits[i](ctx), "function 100 within 500ms");
    CHECK(ctx->state == NAAICE_ERROR && strstr(naaice_last_error(), "NAA_TIMEOUT"));
    CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  }
  /* A timeout that the program sets counts more where the library waits. */
  ctx = calling(argv, 1200);
  ctx->timeout = 0.8;
  REFUSED(naaice_poll_cq_blocking(ctx), "no answer within 800ms");
  ctx->timeout = 20;
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->state == NAAICE_FINISHED);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
}

static void nonsense(char **argv) {
  REFUSED(naaice_setup_connection(created(argv)), "NAA_TIMEOUT=");
}

/* With NAA_TIMEOUT=0.5 and nobody at the address. */
static void unreachable(char **argv) {
  REFUSED(naaice_setup_connection(created(argv)), "cannot be reached");
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  if (strcmp(argv[3], "slow") == 0) {
    slow(argv);
  } else if (strcmp(argv[3], "limited") == 0) {
    limited(argv);
  } else if (strcmp(argv[3], "nonsense") == 0) {
    nonsense(argv);
  } else {
    unreachable(argv);
  }
  puts("ok");
  return 0;
}
