/* Contexts of branch `next`: its constructor, its struct, its 24 bits. */
#define NAAICE_NEXT
#include <naaice_ap2.h>

#include "check.h"

static char in[8], out[8];
static char *params[2] = {in, out};

static int create(struct naaice_communication_context **ctx, uint64_t *addresses, size_t *sizes, unsigned amount,
                  unsigned internals, const char *remote) {
  return naaice_init_communication_context_with_addresses(ctx, addresses, params, amount, sizes, internals, FAIL,
                                                          local_ip(), remote, server_port());
}

static void connect_to(struct naaice_communication_context *ctx) {
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 1) == 0);
  CHECK(naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0);
}

static void use(void) {
  struct naaice_communication_context *ctx = NULL;
  uint64_t addresses[3] = {0x7000000, 0x1000, 0xffffffffffff00};
  size_t sizes[3] = {4096, 8, 8};
  uint8_t user[3] = {0x56, 0x34, 0x12};
  CHECK(sizeof *ctx == 152);
  CHECK(create(&ctx, addresses, sizes, 2, 1, server_ip()) == 0);
  CHECK(ctx->mr_internal[0].addr == 0x7000000 && ctx->mr_internal[0].size == 4096);
  CHECK(ctx->mr_peer_data[0].addr == 0x1000 && ctx->mr_peer_data[1].addr == 0xffffffffffff00);
  connect_to(ctx);
  CHECK(naaice_set_immediate(ctx, user) == 0 && naaice_init_data_transfer(ctx) == 0 && !ctx->response_received);
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->response_received && ctx->response_user_immediate == 0x123456);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  free(ctx);
}

static void arguments(void) {
  struct naaice_communication_context *ctx = (struct naaice_communication_context *)8;
  uint64_t addresses[3] = {0, 4096, 8192}, beyond[3] = {0, 4096, (uint64_t)1 << 56};
  size_t sizes[3] = {64, 8, 8}, huge[3] = {((size_t)1 << 31) + 1, 8, 8};
  REFUSED(create(NULL, addresses, sizes, 2, 1, server_ip()), "comm_ctx is NULL");
  REFUSED(create(&ctx, NULL, sizes, 2, 1, server_ip()), "naa_addresses is NULL");
  CHECK(ctx == NULL);
  REFUSED(create(&ctx, addresses, NULL, 2, 1, server_ip()), "mr_sizes is NULL");
  REFUSED(create(&ctx, addresses, sizes, UINT32_MAX, UINT32_MAX, server_ip()), "1 to 31");
  REFUSED(create(&ctx, addresses, sizes, 2, 1u << 31, server_ip()), "1 to 31");
  REFUSED(create(&ctx, beyond, sizes, 2, 1, server_ip()), "56 bits");
  REFUSED(create(&ctx, addresses, huge, 2, 1, server_ip()), "split it");
  REFUSED(create(&ctx, addresses, sizes, 2, 1, NULL), "remote_address is NULL");
  REFUSED(create(&ctx, addresses, sizes, 0, 3, server_ip()), "at least one");
  REFUSED(naaice_init_communication_context_with_addresses(&ctx, addresses, NULL, 2, sizes, 1, 1, local_ip(),
                                                           server_ip(), server_port()),
          "params is NULL");
  REFUSED(naaice_init_communication_context_with_addresses(&ctx, addresses, params, 2, sizes, 1, 128, local_ip(),
                                                           server_ip(), server_port()),
          "1 to 127");
  CHECK(ctx == NULL);
}

/* The usual constructor makes this struct too. */
static void usual(void) {
  struct naaice_communication_context *ctx = NULL;
  size_t sizes[2] = {8, 8};
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, SUM, local_ip(), server_ip(),
                                          server_port()) == 0);
  connect_to(ctx);
  memset(in, 1, 8);
  CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->bytes_received == 8 && ctx->response_user_immediate == 0);
  all_are(out, 8, 8);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  free(ctx);
}

static void middleware(void) {
  char spec[128];
  naa_param_t input = {in, 8, false}, output = {out, 8, false};
  naa_handle handle;
  naa_status status;
  bool flag = false;
  snprintf(spec, sizeof spec, "%s:%u:%d:1", server_ip(), server_port(), FAIL);
  setenv("NAA_SPEC", spec, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  CHECK(naa_create(FAIL, &input, 1, &output, 1, &handle) == 0);
  uint8_t user[3] = {1, 2, 3};
  CHECK(naaice_set_immediate(handle.comm_ctx, user) == 0 && naa_invoke(&handle) == 0);
  while (!flag) {
    CHECK(naa_test(&handle, &flag, &status) == 0);
  }
  CHECK(status.state == NAAICE_FINISHED && status.user_immediate == 0x030201);
  CHECK(naa_finalize(&handle) == 0);
}

static const struct row rows[] = {
    {"naaice_init_communication_context_with_addresses", "use", use, 10, false},
    {"naaice_init_communication_context_with_addresses", "arguments", arguments, 10, false},
    {"naaice_init_communication_context", "use, of branch next", usual, 10, false},
    {"naa_create", "use, of branch next", middleware, 10, false},
};

MAIN(rows)
