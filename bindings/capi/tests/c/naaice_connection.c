/* The way to a connection in single steps, and connections that fail. */
#include <naaice.h>

#include "naaice_check.h"

static char in[8], out[8];
static char *params[2] = {in, out};
static size_t sizes[2] = {8, 8};

static struct naaice_communication_context *create(char **argv, uint16_t port) {
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, 102, argv[1], argv[2], port) == 0);
  return ctx;
}

static enum rdma_cm_event_type next(struct naaice_communication_context *ctx, struct rdma_cm_event *event) {
  struct rdma_cm_event unused;
  memset(event, 0xff, sizeof *event);
  while (naaice_poll_connection_event(ctx, &unused, event) != 0) {
    CHECK(strstr(naaice_last_error(), "no connection event within 500ms") != NULL);
  }
  CHECK(event->id == NULL && event->status == 0 && event->param.conn.private_data == NULL);
  return event->event;
}

int main(int argc, char **argv) {
  uint16_t port;
  struct rdma_cm_event event;
  struct naaice_communication_context *ctx;
  CHECK(argc == 4 && sizeof event == 80);
  port = (uint16_t)atoi(argv[3]);

  ctx = create(argv, port);
  REFUSED(naaice_register_mrs(ctx), "after naaice_setup_connection");
  CHECK(next(ctx, &event) == RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(naaice_handle_route_resolved(ctx, &event) == 0 && naaice_handle_error(ctx, &event) == 0);
  CHECK(ctx->state == NAAICE_INIT);
  CHECK(naaice_handle_addr_resolved(ctx, &event) == 0 && ctx->state == NAAICE_READY);
  REFUSED(naaice_handle_addr_resolved(ctx, &event), "once");
  CHECK(next(ctx, &event) == RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK(naaice_handle_route_resolved(ctx, &event) == 0 && ctx->state == NAAICE_READY);
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  REFUSED(naaice_handle_connection_established(ctx, &event), "agreed to the connection");
  CHECK(next(ctx, &event) == RDMA_CM_EVENT_ESTABLISHED);
  CHECK(naaice_handle_connection_established(ctx, &event) == 0 && ctx->state == NAAICE_CONNECTED);
  REFUSED(naaice_poll_connection_event(ctx, &event, &event), "no connection event");
  CHECK(naaice_register_mrs(ctx) == 0 && naaice_post_recv_mrsp(ctx) == 0);
  /* What parameters are for may be said after their registration. */
  CHECK(naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 1) == 0);
  REFUSED(naaice_send_message(ctx, MSG_MR_A, 0), "MSG_MR_AAR");
  CHECK(naaice_send_message(ctx, MSG_MR_AAR, 0) == 0);
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->state == NAAICE_MRSP_DONE);
  in[3] = 9;
  CHECK(naaice_post_recv_data(ctx) == 0 && naaice_write_data(ctx, 102) == 0);
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && out[0] == 9);
  CHECK(naaice_write_data(ctx, 0) == 0 && ctx->state == NAAICE_ERROR);
  REFUSED(naaice_init_data_transfer(ctx), "state ERROR");
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);

  ctx = create(argv, port);
  while (ctx->state < NAAICE_CONNECTED) {
    CHECK(naaice_poll_and_handle_connection_event(ctx) == 0);
  }
  event.event = RDMA_CM_EVENT_DISCONNECTED;
  REFUSED(naaice_handle_error(ctx, &event), "DISCONNECTED");
  CHECK(ctx->state == NAAICE_ERROR && naaice_disconnect_and_cleanup(ctx) == 0);

  /* Nobody listens on that port. */
  ctx = create(argv, (uint16_t)(port + 1));
  CHECK(naaice_init_rdma_resources(ctx) == 0 && next(ctx, &event) == RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK(naaice_handle_route_resolved(ctx, &event) == 0);
  CHECK(next(ctx, &event) == RDMA_CM_EVENT_REJECTED && ctx->state == NAAICE_READY);
  REFUSED(naaice_handle_error(ctx, &event), "refused the connection");
  CHECK(ctx->state == NAAICE_ERROR);
  REFUSED(naaice_setup_connection(ctx), "refused the connection");
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);

  ctx = create(argv, (uint16_t)(port + 1));
  REFUSED(naaice_setup_connection(ctx), "refused the connection");
  CHECK(ctx->state == NAAICE_ERROR && naaice_disconnect_and_cleanup(ctx) == 0);
  puts("ok");
  return 0;
}
