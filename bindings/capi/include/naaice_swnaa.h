/* The interface of NAAICE's server in software: an accelerator whose kernels are compiled into the program.
 *
 *   #include <naaice_swnaa.h>
 *   #include <swnaa_kernels.h>
 *
 *   static void increment(struct naaice_communication_context *c) { ... c->mr_local_data[0].addr ... }
 *
 *   int match_function_code(uint8_t fncode, void (**kernel)(struct naaice_communication_context *)) {
 *     if (fncode == 1) *kernel = increment;
 *     return 0;
 *   }
 *
 *   int main(void) {
 *     struct context *ctx;
 *     if (naaice_swnaa_init_master(&ctx, 12345)) return 1;
 *     for (;;) naaice_swnaa_poll_and_handle_connection_event(ctx);
 *   }
 *
 * Functions return 0, or -1 with a text for the calling thread (naaice_last_error).
 *
 * Address. NAAICE's server binds all addresses; here it serves one: NAA_LOCAL_IP if that is set, else the first that
 * an RDMA device has, else the first global address of an interface that is up, else 127.0.0.1. NAA_PROVIDER asks
 * for rdma-core ("verbs") or the stack of this library ("embedded").
 *
 * Dialect. With NAAICE_NEXT defined, before this is included, this is the interface of NAAICE's branch `next`:
 * naaice_swnaa_init_master takes the function that is called for every request, and what that returns is the error
 * code for the host.
 *
 * No isolation. Kernels run in the program's own process, each connection's on a thread of its own: one that
 * crashes ends the server, one that hangs keeps its connection's slot, and each can reach the memory of all hosts.
 * `naa serve --kernels` (naa_kernel.h) runs kernels in processes of their own. */
#ifndef NAAICE_SWNAA_H
#define NAAICE_SWNAA_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"
#include "naaice.h"

struct rdma_cm_event;
struct ibv_wc;

/* Ids of free slots are connections[0] to connections[top - 1]; top == MAX_CONNECTIONS says that no host is
 * connected. */
struct connection_management {
  uint8_t connections[MAX_CONNECTIONS];
  volatile int top;
};

#ifdef NAAICE_NEXT
typedef uint8_t(rpc_function_t)(uint8_t fncode, struct naaice_communication_context *ctx);
#endif

/* A server. It, master and con_mng are from malloc: a program may free them once no slot is used, or leave all of it
 * to naaice_swnaa_shutdown_master. master->id and master->ev_channel are NULL. */
struct context {
  pthread_mutex_t lock;
  uint8_t total_connections_lifetime; /* stays at 255 */
  struct naaice_communication_context *master;
  struct connection_management *con_mng;
  struct naaice_communication_context *worker[MAX_CONNECTIONS];
  pthread_t worker_threads[MAX_CONNECTIONS];
#ifdef NAAICE_NEXT
  rpc_function_t *rpc_func;
#endif
};

/* What a connection's thread is given, from malloc; the thread frees it. */
struct worker_args {
  struct context *ctx;
  uint8_t worker_id;
};

#ifdef __cplusplus
extern "C" {
#endif

/* What a connection's thread does: MRSP, then call after call until the host leaves. Made of functions below, so
 * that a program may have its own (naaice_swnaa_set_worker). */
void *worker_procedure(void *args);

/* What naaice_swnaa_init_master of this header calls. */
int naaice_swnaa_init_master_sized(struct context **ctx, uint16_t local_cm_port, int max_connections,
                                   int (*match)(uint8_t, void (**)(struct naaice_communication_context *)));
int naaice_swnaa_init_master_next(struct context **ctx, uint16_t local_cm_port,
                                  uint8_t (*rpc_func)(uint8_t, struct naaice_communication_context *),
                                  int max_connections);

/* Listens on local_cm_port, with places for MAX_CONNECTIONS. An earlier server of this program on the port gives way if
 * no host is connected to it, since programs free theirs without a word. Hosts are taken in by
 * naaice_swnaa_poll_and_handle_connection_event. */
#ifdef NAAICE_NEXT
static inline int naaice_swnaa_init_master(struct context **ctx, uint16_t local_cm_port, rpc_function_t *rpc_func) {
  return naaice_swnaa_init_master_next(ctx, local_cm_port, rpc_func, MAX_CONNECTIONS);
}
#else
int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *));

static inline int naaice_swnaa_init_master(struct context **ctx, uint16_t local_cm_port) {
  return naaice_swnaa_init_master_sized(ctx, local_cm_port, MAX_CONNECTIONS, match_function_code);
}
#endif

/* Puts a context into ctx->worker[worker_id], a free slot. Connections do without; one whose timeout was set here is
 * the next connection's that takes the slot. */
int naaice_swnaa_init_worker(struct context **ctx, uint8_t worker_id);

/* A context without a connection, for programs that want one. */
int naaice_swnaa_init_communication_context(struct naaice_communication_context **comm_ctx);

/* Takes hosts in until one has confirmed its connection, or ctx->master->timeout seconds have passed (-1). */
int naaice_swnaa_setup_connection(struct context *ctx);

/* The body of a server's loop: waits for a host, up to half a second, and takes it in on a thread of its own, or
 * refuses it if no slot is free. 0 also if none came. */
int naaice_swnaa_poll_and_handle_connection_event(struct context *ctx);

/* The same without waiting; -1 if no host asks. ev is not looked at, here and in the next. */
int naaice_swnaa_handle_connection_requests(struct context *ctx, struct rdma_cm_event *ev);

/* Sets the state to CONNECTED if the host has confirmed. */
int naaice_swnaa_handle_connection_established(struct naaice_communication_context *comm_ctx,
                                               struct rdma_cm_event *ev);

/* Ends the connection if ev says that it failed (-1) or that the host disconnected. */
int naaice_swnaa_handle_error(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev);

/* Steps of a worker. All sleep while they wait. When the host leaves, the state is FINISHED and
 * receive_data_transfer, do_data_transfer and poll_cq_nonblocking return 0 once more; whatever else ends a
 * connection is -1, and FINISHED too. The regions stay until the clean-up.
 *
 * Receives are posted by the library in time, so post_recv_mrsp and post_recv_data only say what is waited for.
 * handle_mr_announce_and_request is done as the host's message arrives, and so is sending MSG_MR_A. */
int naaice_swnaa_init_mrsp(struct naaice_communication_context *comm_ctx);
int naaice_swnaa_do_mrsp(struct naaice_communication_context *comm_ctx);
int naaice_swnaa_post_recv_mrsp(struct naaice_communication_context *comm_ctx);
int naaice_swnaa_handle_work_completion(struct ibv_wc *wc, struct naaice_communication_context *comm_ctx);
int naaice_swnaa_handle_mr_announce_and_request(struct naaice_communication_context *comm_ctx);
/* MSG_MR_ERR refuses the host, whose connection then ends. */
int naaice_swnaa_send_message(struct naaice_communication_context *comm_ctx, enum message_id message_type,
                              uint8_t errorcode);
int naaice_swnaa_post_recv_data(struct naaice_communication_context *comm_ctx);
/* Waits for a call; then the state is CALCULATING, and fncode, immediate and the regions are the call's. */
int naaice_swnaa_receive_data_transfer(struct naaice_communication_context *comm_ctx);
/* Answers it, and waits until the host has the answer. An errorcode other than 0 goes instead of the results. */
int naaice_swnaa_do_data_transfer(struct naaice_communication_context *comm_ctx, uint8_t errorcode);
/* The same without waiting. */
int naaice_swnaa_write_data(struct naaice_communication_context *comm_ctx, uint8_t errorcode);
/* Takes what arrived and lets the state go on; sleeps up to 10 ms if nothing did. */
int naaice_swnaa_poll_cq_nonblocking(struct naaice_communication_context *comm_ctx);
/* Ends the connection and gives its memory back. The context itself and its slot go when the worker returns. */
int naaice_swnaa_disconnect_and_cleanup(struct naaice_communication_context *comm_ctx);

/* Beyond NAAICE. */

/* Connections from now on run this on their threads; NULL for worker_procedure. Its argument is a struct worker_args,
 * to be freed; the connection's context is ctx->worker[worker_id]. When it returns, the connection ends. */
int naaice_swnaa_set_worker(struct context *ctx, void *(*worker)(void *));

/* Ends the server: its connections, its listener, and *ctx, which is NULL then. Waits up to timeout_ms for kernels
 * that run (-1: as long as they take); -1 if some still do, and then *ctx lives on. */
int naaice_swnaa_shutdown_master(struct context **ctx, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
