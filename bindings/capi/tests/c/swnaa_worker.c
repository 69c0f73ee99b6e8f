/* A server whose program has its own worker, made of NAAICE's steps; half of its connections by a polling loop. It takes
 * one connection, and ends as NAAICE's measurement does: by waiting for its slot and freeing everything. */
#include <naaice_swnaa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *)) {
  (void)fncode;
  (void)worker_func;
  return -1;
}

static uint8_t compute(struct naaice_communication_context *c) {
  if (c->fncode == 9) return 0x42;
  c->mr_local_data[0].addr[0] = (char)(c->mr_local_data[0].addr[0] * 2);
  return 0;
}

static void by_steps(struct naaice_communication_context *c) {
  if (naaice_swnaa_do_mrsp(c)) return;
  while (c->state >= NAAICE_MRSP_DONE) {
    if (naaice_swnaa_receive_data_transfer(c)) break;
    if (c->state < NAAICE_MRSP_DONE || c->state == NAAICE_FINISHED) break;
    if (naaice_swnaa_do_data_transfer(c, compute(c))) break;
  }
}

static int poll_until(struct naaice_communication_context *c, int state) {
  while ((int)c->state != state) {
    if (naaice_swnaa_poll_cq_nonblocking(c)) return -1;
  }
  return 0;
}

static void by_polling(struct naaice_communication_context *c) {
  if (naaice_swnaa_post_recv_mrsp(c) || naaice_swnaa_init_mrsp(c)) return;
  if (poll_until(c, NAAICE_MRSP_DONE)) return;
  if (naaice_swnaa_handle_mr_announce_and_request(c) || naaice_swnaa_send_message(c, MSG_MR_A, 0)) return;
  for (;;) {
    if (naaice_swnaa_post_recv_data(c) || poll_until(c, NAAICE_CALCULATING)) return;
    if (c->fncode == 8) {
      naaice_swnaa_send_message(c, MSG_MR_ERR, 3);
      while (!naaice_swnaa_poll_cq_nonblocking(c)) continue;
      return;
    }
    if (naaice_swnaa_write_data(c, compute(c)) || poll_until(c, NAAICE_DATA_RECEIVING)) return;
  }
}

static int polling;

static void *work(void *arg) {
  struct worker_args *args = (struct worker_args *)arg;
  struct naaice_communication_context *c = args->ctx->worker[args->worker_id];
  if (args->worker_id != c->connection_id) abort();
  free(args);
  if (polling) {
    by_polling(c);
  } else {
    by_steps(c);
  }
  if (c->state != NAAICE_FINISHED) abort();
  naaice_swnaa_disconnect_and_cleanup(c);
  return NULL;
}

int main(int argc, char **argv) {
  struct context *ctx;
  unsigned short port = (unsigned short)atoi(argv[1]);
  polling = argc > 2;
  for (int round = 0; round < 2; round++) {
    if (naaice_swnaa_init_master(&ctx, port) || naaice_swnaa_set_worker(ctx, work)) {
      fprintf(stderr, "%s\n", naaice_last_error());
      return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (ctx->total_connections_lifetime == 0) naaice_swnaa_poll_and_handle_connection_event(ctx);
    while (ctx->con_mng->top < MAX_CONNECTIONS) usleep(10);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx->master);
    free(ctx->con_mng);
    free(ctx);
  }
  return 0;
}
