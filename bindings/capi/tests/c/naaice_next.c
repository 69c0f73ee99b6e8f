/* The struct of branch `next`, its constructor, and the function's 24 bits. */
#include <naaice_ap2.h>

#include "naaice_check.h"

int main(int argc, char **argv) {
  size_t sizes[3] = {4096, 8, 8};
  uint64_t addresses[3] = {0x7000000, 0x1000, 0xffffffffffff00};
  char in[8] = {1}, out[8];
  char *params[2] = {in, out};
  uint8_t user[3] = {0x56, 0x34, 0x12};
  struct naaice_communication_context *ctx = NULL;
  naa_status status = {NAAICE_INIT, 0, 0};
  CHECK(argc == 4 && status.user_immediate == 0);
#ifndef __cplusplus
  _Static_assert(sizeof(struct naaice_communication_context) == 152, "");
  _Static_assert(offsetof(struct naaice_communication_context, response_user_immediate) == 124, "");
  _Static_assert(offsetof(struct naaice_communication_context, bytes_received) == 132, "");
  _Static_assert(offsetof(struct naaice_communication_context, connection_id) == 148, "");
#endif
  addresses[2] = (uint64_t)1 << 56;
  REFUSED(naaice_init_communication_context_with_addresses(&ctx, addresses, params, 2, sizes, 1, 101, argv[1],
                                                           argv[2], (uint16_t)atoi(argv[3])),
          "56 bits");
  CHECK(ctx == NULL);
  addresses[2] = 0xffffffffffff00;
  CHECK(naaice_init_communication_context_with_addresses(&ctx, addresses, params, 2, sizes, 1, 101, argv[1],
                                                         argv[2], (uint16_t)atoi(argv[3])) == 0);
  CHECK(ctx->mr_internal[0].addr == addresses[0] && ctx->mr_peer_data[1].addr == addresses[2]);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0);
  CHECK(naaice_set_output_mr(ctx, 1) == 0 && naaice_register_mrs(ctx) == 0);
  CHECK(naaice_set_immediate(ctx, user) == 0 && naaice_do_mrsp(ctx) == 0);
  CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->response_received);
  CHECK(ctx->response_user_immediate == 0x123456);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);

  CHECK(naaice_init_communication_context(&ctx, 0, sizes + 1, params, 2, 0, NULL, 102, argv[1], argv[2],
                                          (uint16_t)atoi(argv[3])) == 0);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0);
  CHECK(naaice_set_output_mr(ctx, 1) == 0 && naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0);
  CHECK(naaice_do_data_transfer(ctx) == 0 && out[7] == 1 && ctx->bytes_received == 8);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  puts("ok");
  return 0;
}
