/* The low-level interface with every way of polling. */
#include <naaice.h>

#include "naaice_check.h"

#define N 4
#define SUM 102

static void offsets(void) {
#ifndef __cplusplus
  _Static_assert(sizeof(struct naaice_communication_context) == 144, "");
  _Static_assert(offsetof(struct naaice_communication_context, state) == 68, "");
  _Static_assert(offsetof(struct naaice_communication_context, naa_returncode) == 122, "");
  _Static_assert(offsetof(struct naaice_communication_context, connection_id) == 140, "");
  _Static_assert(sizeof(struct naaice_mr_peer) == 32, "");
  _Static_assert(sizeof(struct naaice_mr_advertisement_request) == 24, "");
  _Static_assert(MR_SIZE_MRSP == 768, "");
#endif
}

static uint8_t total(char **params, size_t *sizes, int from, int user) {
  int sum = user;
  for (int i = from; i < N - 1; i++) {
    for (size_t at = 0; at < sizes[i]; at++) {
      sum += (unsigned char)params[i][at];
    }
  }
  return (uint8_t)sum;
}

static void all_are(const char *bytes, size_t size, uint8_t value) {
  for (size_t at = 0; at < size; at++) {
    CHECK((uint8_t)bytes[at] == value);
  }
}

int main(int argc, char **argv) {
  /* Sizes of nothing, less than a page and more than a packet; addresses that are not aligned. */
  size_t sizes[N] = {1000, 0, 100001, 70000};
  size_t internals[1] = {5000};
  char *params[N];
  struct naaice_communication_context *ctx = NULL;
  uint8_t user[3] = {1, 2, 3};
  offsets();
  CHECK(argc == 4);
  for (int i = 0; i < N; i++) {
    params[i] = (char *)malloc(sizes[i] + 3) + 3;
    memset(params[i], i + 1, sizes[i]);
  }
  CHECK(naaice_init_communication_context(&ctx, 0x123456789000, sizes, params, N, 1, internals, SUM, argv[1],
                                          argv[2], (uint16_t)atoi(argv[3])) == 0);
  CHECK(ctx->state == NAAICE_INIT && ctx->timeout == DEFAULT_TIMEOUT && ctx->retry_count == 7);
  CHECK(ctx->no_local_mrs == N && ctx->no_peer_mrs == N && ctx->no_internal_mrs == 1 && ctx->fncode == SUM);
  CHECK(ctx->mr_local_data[2].addr == params[2] && ctx->mr_local_data[2].size == sizes[2]);
  CHECK(ctx->mr_internal[0].addr == 0x123456789000 && ctx->mr_peer_data[0].addr == 0x12345678b000);
  CHECK(naaice_setup_connection(ctx) == 0 && ctx->state == NAAICE_CONNECTED);
  CHECK(naaice_register_mrs(ctx) == 0);
  for (unsigned int i = 0; i < N - 1; i++) {
    CHECK(naaice_set_input_mr(ctx, i) == 0 && naaice_set_input_mr(ctx, i) == 0);
  }
  CHECK(naaice_set_output_mr(ctx, N - 1) == 0);
  CHECK(naaice_set_singlesend_mr(ctx, 0) == 0);
  CHECK(ctx->no_input_mrs == N - 1 && ctx->no_output_mrs == 1);
  CHECK(naaice_set_immediate(ctx, user) == 0);

  CHECK(naaice_init_mrsp(ctx) == 0 && ctx->state == NAAICE_MRSP_SENDING);
  while (ctx->state < NAAICE_MRSP_DONE) {
    CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
  }
  CHECK(ctx->state == NAAICE_MRSP_DONE);

  /* Two bytes of the first parameter are sent, with the first call; the accelerator's memory starts as zeros. */
  CHECK(naaice_set_bytes_to_send(ctx, 0, 2) == 0);
  CHECK(naaice_init_data_transfer(ctx) == 0 && ctx->state == NAAICE_DATA_SENDING);
  while (ctx->state < NAAICE_FINISHED) {
    CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
  }
  CHECK(ctx->state == NAAICE_FINISHED && ctx->naa_returncode == 0 && ctx->bytes_received == sizes[N - 1]);
  all_are(params[N - 1], sizes[N - 1], total(params, sizes, 1, 2 + 6));
  CHECK(ctx->no_rpc_calls == 1 && ctx->no_input_mrs == N - 2 && !ctx->mr_local_data[0].to_write);

  /* A change of the first goes unseen, one of the third does not. */
  memset(params[0], 99, sizes[0]);
  params[2][5]++;
  CHECK(naaice_init_data_transfer(ctx) == 0 && naaice_poll_cq_blocking(ctx) == 0);
  CHECK(ctx->state == NAAICE_FINISHED);
  all_are(params[N - 1], sizes[N - 1], total(params, sizes, 1, 2 + 6));

  /* Nothing of the third: it stays there as it was. */
  uint8_t before = (uint8_t)params[N - 1][0];
  params[2][6]++;
  CHECK(naaice_set_bytes_to_send(ctx, 2, 0) == 0);
  CHECK(naaice_init_data_transfer(ctx) == 0 && naaice_poll_cq_busy(ctx) == 0);
  all_are(params[N - 1], sizes[N - 1], before);
  CHECK(naaice_set_bytes_to_send(ctx, 2, -1) == 0);
  CHECK(naaice_do_data_transfer(ctx) == 0);
  all_are(params[N - 1], sizes[N - 1], (uint8_t)(before + 1));

  /* Another function, whose failure is an answer too. */
  ctx->fncode = 101;
  CHECK(naaice_do_data_transfer(ctx) == 0);
  CHECK(ctx->state == NAAICE_FINISHED && ctx->naa_returncode == 255 && ctx->bytes_received == 0);
  ctx->fncode = 99;
  CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->naa_returncode == 0x10);
  ctx->fncode = SUM;
  for (int i = 0; i < 200; i++) {
    CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->naa_returncode == 0);
  }
  CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  CHECK(ctx->state == NAAICE_FINISHED);
  REFUSED(naaice_disconnect_and_cleanup(ctx), "no more");
  for (int i = 0; i < N; i++) {
    free(params[i] - 3);
  }
  puts("ok");
  return 0;
}
