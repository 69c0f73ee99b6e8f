/* Every function with arguments that are no good, and in states that are wrong: -1 and a text, never a crash. */
#include <naaice_swnaa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void fails(int line, int result, const char *with) {
  if (result != -1 || !strstr(naaice_last_error(), with)) {
    fprintf(stderr, "line %d: %d, \"%s\" instead of \"%s\"\n", line, result, naaice_last_error(), with);
    failures++;
  }
}

#define FAILS(call, with) fails(__LINE__, (call), (with))

int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *)) {
  (void)fncode;
  (void)worker_func;
  return 0;
}

static void contexts_that_are_none(struct naaice_communication_context *c, const char *with) {
  struct rdma_cm_event *ev = (struct rdma_cm_event *)(char[64]){0};
  FAILS(naaice_swnaa_handle_connection_established(c, NULL), with);
  FAILS(naaice_swnaa_handle_error(c, (struct rdma_cm_event *)((uintptr_t)ev & ~(uintptr_t)7)), with);
  FAILS(naaice_swnaa_init_mrsp(c), with);
  FAILS(naaice_swnaa_do_mrsp(c), with);
  FAILS(naaice_swnaa_post_recv_mrsp(c), with);
  FAILS(naaice_swnaa_handle_mr_announce_and_request(c), with);
  FAILS(naaice_swnaa_send_message(c, MSG_MR_ERR, 1), with);
  FAILS(naaice_swnaa_post_recv_data(c), with);
  FAILS(naaice_swnaa_receive_data_transfer(c), with);
  FAILS(naaice_swnaa_do_data_transfer(c, 0), with);
  FAILS(naaice_swnaa_write_data(c, 0), with);
  FAILS(naaice_swnaa_poll_cq_nonblocking(c), with);
  FAILS(naaice_swnaa_disconnect_and_cleanup(c), with);
}

static void servers_that_are_none(struct context *s, const char *with) {
  FAILS(naaice_swnaa_init_worker(&s, 0), with);
  FAILS(naaice_swnaa_setup_connection(s), with);
  FAILS(naaice_swnaa_poll_and_handle_connection_event(s), with);
  FAILS(naaice_swnaa_handle_connection_requests(s, NULL), with);
  FAILS(naaice_swnaa_set_worker(s, NULL), with);
  FAILS(naaice_swnaa_shutdown_master(&s, 0), with);
}

static void states_that_are_wrong(struct naaice_communication_context *c) {
  char wc[48] = {0};
  FAILS(naaice_swnaa_init_mrsp(c), "state is INIT");
  FAILS(naaice_swnaa_do_mrsp(c), "state is INIT");
  FAILS(naaice_swnaa_post_recv_mrsp(c), "state is INIT");
  FAILS(naaice_swnaa_handle_connection_established(c, NULL), "state is INIT");
  FAILS(naaice_swnaa_handle_mr_announce_and_request(c), "state is INIT");
  FAILS(naaice_swnaa_send_message(c, MSG_MR_AAR, 0), "MSG_MR_A or MSG_MR_ERR");
  FAILS(naaice_swnaa_send_message(c, MSG_MR_ERR, 1), "no");
  FAILS(naaice_swnaa_post_recv_data(c), "state is INIT");
  FAILS(naaice_swnaa_receive_data_transfer(c), "state is INIT");
  FAILS(naaice_swnaa_do_data_transfer(c, 0), "state is INIT");
  FAILS(naaice_swnaa_write_data(c, 0), "state is INIT");
  FAILS(naaice_swnaa_poll_cq_nonblocking(c), "connection");
  FAILS(naaice_swnaa_handle_work_completion(NULL, c), "NULL");
  FAILS(naaice_swnaa_handle_work_completion((struct ibv_wc *)wc, c), "connection");
  wc[12] = 77;
  FAILS(naaice_swnaa_handle_work_completion((struct ibv_wc *)wc, c), "opcode");
  FAILS(naaice_swnaa_handle_error(c, NULL), "NULL");
  c->state = (naaice_communication_state)13;
  FAILS(naaice_swnaa_do_mrsp(c), "none of NAAICE's");
}

int main(int argc, char **argv) {
  struct context *s = NULL, *second = NULL;
  struct naaice_communication_context *c = NULL;
  unsigned short port = argc > 1 ? (unsigned short)atoi(argv[1]) : 12345;
  char nonsense[256] = {0};

  FAILS(naaice_swnaa_init_master(NULL, port), "NULL");
  FAILS(naaice_swnaa_init_master_sized(&s, port, 0, match_function_code), "1 to 256");
  FAILS(naaice_swnaa_init_master_sized(&s, port, 257, match_function_code), "1 to 256");
  FAILS(naaice_swnaa_init_master_next(&s, port, NULL, 8), "NULL");
  FAILS(naaice_swnaa_init_communication_context(NULL), "NULL");
  FAILS(naaice_swnaa_init_worker(NULL, 0), "NULL");
  FAILS(naaice_swnaa_shutdown_master(NULL, 0), "NULL");
  if (worker_procedure(NULL)) failures++;
  setenv("NAA_LOCAL_IP", "nowhere", 1);
  FAILS(naaice_swnaa_init_master(&s, port), "NAA_LOCAL_IP=nowhere");
  setenv("NAA_LOCAL_IP", "192.0.2.1", 1);
  FAILS(naaice_swnaa_init_master(&s, port), "cannot serve on 192.0.2.1");
  setenv("NAA_LOCAL_IP", argv[2], 1);

  contexts_that_are_none(NULL, "NULL");
  contexts_that_are_none((struct naaice_communication_context *)nonsense, "nothing of this library");
  contexts_that_are_none((struct naaice_communication_context *)(uintptr_t)1, "nothing of this library");
  servers_that_are_none(NULL, "NULL");
  servers_that_are_none((struct context *)nonsense, "nothing of this library");
  if (naaice_swnaa_init_communication_context(&c) || c->state != NAAICE_INIT) failures++;
  servers_that_are_none((struct context *)c, "leads to a software accelerator's context");
  states_that_are_wrong(c);
  if (naaice_swnaa_disconnect_and_cleanup(c) || naaice_swnaa_disconnect_and_cleanup(c)) failures++;

  if (naaice_swnaa_init_master(&s, port)) return fprintf(stderr, "%s\n", naaice_last_error());
  /* An idle server on the port gives way; the same port of one that is used would not. */
  if (naaice_swnaa_init_master(&second, port)) return fprintf(stderr, "%s\n", naaice_last_error());
  FAILS(naaice_swnaa_poll_and_handle_connection_event(s), "nothing of this library");
  s = second;
  contexts_that_are_none((struct naaice_communication_context *)s, "leads to a server's struct context");
  FAILS(naaice_swnaa_handle_connection_requests(s, NULL), "no host asks");
  if (naaice_swnaa_init_worker(&s, 3) || s->worker[3]->connection_id != 3) failures++;
  FAILS(naaice_swnaa_init_worker(&s, (uint8_t)(MAX_CONNECTIONS)), "no such slot");
  s->master->timeout = 0.2;
  FAILS(naaice_swnaa_setup_connection(s), "timeout of 0.2 s");
  if (naaice_swnaa_poll_and_handle_connection_event(s)) failures++;
  if (naaice_swnaa_shutdown_master(&s, -1) || s) failures++;
  return failures != 0;
}
