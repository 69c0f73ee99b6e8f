/* NULL, nonsense, and calls in the wrong state. Everything is refused with a text, and nothing is broken by it. */
#define _DEFAULT_SOURCE
#include <naaice_ap2.h>

#include "naaice_check.h"

extern const char *get_state_str(naaice_communication_state state);
extern const char *get_ibv_wc_opcode_str(int opcode);
extern void get_sequential_naa_addresses(unsigned int amount, uint64_t offset, size_t *sizes, uint64_t *addresses);

static char *argument[4];
static char in[64], out[64];

static int create(struct naaice_communication_context **ctx, size_t *sizes, char **params, unsigned int amount,
                  unsigned int internals, size_t *internal_sizes, uint8_t code) {
  return naaice_init_communication_context(ctx, 0, sizes, params, amount, internals, internal_sizes, code,
                                           argument[1], argument[2], (uint16_t)atoi(argument[3]));
}

static void constructors(void) {
  struct naaice_communication_context *ctx = (struct naaice_communication_context *)8;
  size_t sizes[32] = {64, 64};
  size_t huge[2] = {64, ((size_t)1 << 31) + 1};
  char *params[32] = {in, out};
  char *null[2] = {in, NULL};
  REFUSED(create(NULL, sizes, params, 2, 0, NULL, 1), "comm_ctx is NULL");
  REFUSED(create(&ctx, NULL, params, 2, 0, NULL, 1), "param_sizes is NULL");
  CHECK(ctx == NULL);
  REFUSED(create(&ctx, sizes, NULL, 2, 0, NULL, 1), "params is NULL");
  REFUSED(create(&ctx, sizes, params, 2, 1, NULL, 1), "internal_mr_sizes is NULL");
  REFUSED(create(&ctx, sizes, params, 0, 0, NULL, 1), "at least one");
  REFUSED(create(&ctx, sizes, params, 32, 0, NULL, 1), "1 to 31");
  REFUSED(create(&ctx, sizes, params, 31, 1, sizes, 1), "1 to 31");
  REFUSED(create(&ctx, huge, params, 2, 0, NULL, 1), "split it");
  REFUSED(create(&ctx, sizes, null, 2, 0, NULL, 1), "parameter 1 is NULL");
  REFUSED(create(&ctx, sizes, params, 2, 0, NULL, 0), "1 to 127");
  REFUSED(create(&ctx, sizes, params, 2, 0, NULL, 128), "1 to 127");
  REFUSED(naaice_init_communication_context(&ctx, (uint64_t)1 << 56, sizes, params, 2, 0, NULL, 1, NULL,
                                            argument[2], 1),
          "56 bits");
  REFUSED(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, 1, NULL, NULL, 1),
          "remote_address is NULL");
  REFUSED(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, 1, NULL, "no.such.invalid", 1),
          "cannot resolve");
  REFUSED(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, 1, "::1", argument[2], 1), "family");
  REFUSED(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, 1, "192.0.2.77", argument[2], 1),
          "this machine");
  CHECK(ctx == NULL);
}

static void pointers(struct naaice_communication_context *ctx, const char *words) {
  struct rdma_cm_event event;
  uint8_t bytes[3] = {0};
  memset(&event, 0, sizeof event);
  REFUSED(naaice_setup_connection(ctx), words);
  REFUSED(naaice_init_rdma_resources(ctx), words);
  REFUSED(naaice_poll_connection_event(ctx, &event, &event), words);
  REFUSED(naaice_handle_addr_resolved(ctx, &event), words);
  REFUSED(naaice_handle_route_resolved(ctx, &event), words);
  REFUSED(naaice_handle_connection_established(ctx, &event), words);
  REFUSED(naaice_handle_error(ctx, &event), words);
  REFUSED(naaice_handle_other(ctx, &event), words);
  REFUSED(naaice_poll_and_handle_connection_event(ctx), words);
  REFUSED(naaice_register_mrs(ctx), words);
  REFUSED(naaice_set_parameter_mrs(ctx, 0, NULL, NULL, NULL), words);
  REFUSED(naaice_set_input_mr(ctx, 0), words);
  REFUSED(naaice_set_output_mr(ctx, 0), words);
  REFUSED(naaice_set_singlesend_mr(ctx, 0), words);
  REFUSED(naaice_set_internal_mrs(ctx, 0, NULL, NULL), words);
  REFUSED(naaice_set_bytes_to_send(ctx, 0, 0), words);
  REFUSED(naaice_set_immediate(ctx, bytes), words);
  REFUSED(naaice_init_mrsp(ctx), words);
  REFUSED(naaice_do_mrsp(ctx), words);
  REFUSED(naaice_init_data_transfer(ctx), words);
  REFUSED(naaice_do_data_transfer(ctx), words);
  REFUSED(naaice_poll_cq_nonblocking(ctx), words);
  REFUSED(naaice_poll_cq_blocking(ctx), words);
  REFUSED(naaice_poll_cq_busy(ctx), words);
  REFUSED(naaice_handle_work_completion(NULL, ctx), words);
  REFUSED(naaice_send_message(ctx, MSG_MR_AAR, 0), words);
  REFUSED(naaice_write_data(ctx, 1), words);
  REFUSED(naaice_post_recv_mrsp(ctx), words);
  REFUSED(naaice_post_recv_data(ctx), words);
  REFUSED(naaice_disconnect_and_cleanup(ctx), words);
}

/* A struct ibv_wc, as far as it is looked at. */
struct completion {
  uint64_t wr_id;
  int status;
  char rest[40];
};

static void states(void) {
  struct naaice_communication_context *ctx = NULL;
  size_t sizes[2] = {64, 64};
  char *params[2] = {in, out};
  uint64_t addresses[1] = {(uint64_t)1 << 60};
  uint64_t overlapping[2], remote[2] = {0, 4096};
  struct completion wc = {1, 0, {0}};
  CHECK(create(&ctx, sizes, params, 2, 0, NULL, 102) == 0);
  REFUSED(naaice_register_mrs(ctx), "not connected");
  REFUSED(naaice_init_mrsp(ctx), "not connected");
  REFUSED(naaice_init_data_transfer(ctx), "not connected");
  REFUSED(naaice_poll_cq_nonblocking(ctx), "after naaice_init_mrsp");
  REFUSED(naaice_post_recv_data(ctx), "not connected");
  REFUSED(naaice_write_data(ctx, 0), "not connected");
  REFUSED(naaice_send_message(ctx, MSG_MR_ERR, 1), "not connected");
  REFUSED(naaice_poll_connection_event(ctx, NULL, NULL), "ev_cp is NULL");
  REFUSED(naaice_handle_error(ctx, NULL), "the event is NULL");
  REFUSED(naaice_set_input_mr(ctx, 2), "no parameter 2");
  REFUSED(naaice_set_output_mr(ctx, 4000000000u), "no parameter 4000000000");
  REFUSED(naaice_set_singlesend_mr(ctx, 2), "no parameter 2");
  REFUSED(naaice_set_bytes_to_send(ctx, -1, 1), "no parameter -1");
  REFUSED(naaice_set_bytes_to_send(ctx, 0, 65), "65 bytes of parameter 0");
  REFUSED(naaice_set_immediate(ctx, NULL), "imm_bytes is NULL");
  REFUSED(naaice_set_internal_mrs(ctx, 1, addresses, sizes), "56 bits");
  REFUSED(naaice_set_internal_mrs(ctx, 30, addresses, NULL), "is NULL");
  REFUSED(naaice_set_parameter_mrs(ctx, 0, NULL, NULL, NULL), "at least one");

  CHECK(naaice_setup_connection(ctx) == 0);
  REFUSED(naaice_init_mrsp(ctx), "after naaice_register_mrs");
  /* Two parameters that overlap: 64 bytes from the start, and from the 32nd on. */
  overlapping[0] = (uint64_t)(uintptr_t)in;
  overlapping[1] = (uint64_t)(uintptr_t)(in + 32);
  sizes[1] = 32;
  CHECK(naaice_set_parameter_mrs(ctx, 2, overlapping, remote, sizes) == 0);
  CHECK(naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 1) == 0);
  CHECK(naaice_set_internal_mrs(ctx, 1, remote, sizes) == 0 && ctx->no_internal_mrs == 1);
  CHECK(naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0);
  REFUSED(naaice_do_mrsp(ctx), "once");
  REFUSED(naaice_setup_connection(ctx), "once");
  REFUSED(naaice_register_mrs(ctx), "before the regions are agreed on");
  REFUSED(naaice_set_input_mr(ctx, 1), "before the regions are agreed on");
  REFUSED(naaice_set_parameter_mrs(ctx, 2, overlapping, remote, sizes), "before the regions are agreed on");
  REFUSED(naaice_poll_cq_blocking(ctx), "after naaice_init_mrsp");
  ctx->fncode = 0;
  REFUSED(naaice_do_data_transfer(ctx), "1 to 127");
  ctx->fncode = 102;
  memset(in, 1, sizeof in);
  CHECK(naaice_do_data_transfer(ctx) == 0 && in[31] == 1 && in[32] == 64 && in[63] == 64);
  CHECK(naaice_init_data_transfer(ctx) == 0);
  REFUSED(naaice_init_data_transfer(ctx), "in use by a call");
  REFUSED(naaice_handle_work_completion((struct ibv_wc *)&wc, ctx), "naaice_poll_cq_nonblocking");
  wc.status = 12;
  REFUSED(naaice_handle_work_completion((struct ibv_wc *)&wc, ctx), "failed");
  CHECK(ctx->state == NAAICE_ERROR);
  REFUSED(naaice_poll_cq_nonblocking(ctx), "state ERROR");
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  pointers(ctx, "no more");
}

static void middleware(void) {
  naa_param_t input = {in, 64, false}, output = {out, 64, false};
  naa_param_t many[40] = {{in, 1, false}};
  naa_handle handle = {5, (struct naaice_communication_context *)in};
  naa_status status;
  bool flag = true;
  REFUSED(naa_create(1, &input, 1, &output, 1, NULL), "handle is NULL");
  REFUSED(naa_create(1, NULL, 1, &output, 1, &handle), "input_params is NULL");
  CHECK(handle.comm_ctx == NULL);
  REFUSED(naa_create(1, &input, 1, NULL, 1, &handle), "output_params is NULL");
  REFUSED(naa_create(257, &input, 1, &output, 1, &handle), "function code is 257");
  unsetenv("NAA_SPEC");
  REFUSED(naa_create(1, &input, 1, &output, 1, &handle), "NAA_SPEC is not set");
  setenv("NAA_SPEC", "127.0.0.1:1:1", 1);
  REFUSED(naa_create(1, &input, 1, &output, 1, &handle), "has 3 fields");
  setenv("NAA_SPEC", "127.0.0.1::1:1,127.0.0.1:1:5:40", 1);
  REFUSED(naa_create(2, &input, 1, &output, 1, &handle), "no accelerator for function 2");
  REFUSED(naa_create(1, &input, 0, &output, 1, &handle), "with 0 inputs");
  REFUSED(naa_create(5, many, 40, &output, 1, &handle), "1 to 31");
  REFUSED(naa_invoke(NULL), "handle is NULL");
  REFUSED(naa_invoke(&handle), "NULL");
  REFUSED(naa_test(&handle, &flag, &status), "NULL");
  REFUSED(naa_wait(&handle, &status), "NULL");
  REFUSED(naa_finalize(&handle), "NULL");
  handle.comm_ctx = (struct naaice_communication_context *)in;
  REFUSED(naa_wait(&handle, &status), "nothing of this library");
  REFUSED(naa_finalize(&handle), "nothing of this library");
}

int main(int argc, char **argv) {
  size_t sizes[3] = {1, 4096, 1};
  uint64_t addresses[3];
  CHECK(argc == 4);
  memcpy(argument, argv, sizeof argument);
  CHECK(strcmp(naaice_last_error(), "") == 0);
  constructors();
  pointers(NULL, "NULL");
  pointers((struct naaice_communication_context *)in, "nothing of this library");
  pointers((struct naaice_communication_context *)1, "nothing of this library");
  states();
  middleware();
  CHECK(strcmp(get_state_str(NAAICE_FINISHED), "FINISHED") == 0);
  CHECK(strcmp(get_state_str((naaice_communication_state)77), "UNKNOWN") == 0);
  CHECK(strcmp(get_ibv_wc_opcode_str(129), "IBV_WC_RECV_RDMA_WITH_IMM") == 0);
  get_sequential_naa_addresses(3, 4096, sizes, addresses);
  CHECK(addresses[0] == 4096 && addresses[1] == 8192 && addresses[2] == 12288);
  puts("ok");
  return 0;
}
