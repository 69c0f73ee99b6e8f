/* The low-level interface of NAAICE's communication library, on naa.
 *
 * Programs written for NAAICE compile and run against this header and libnaaice unchanged. It has the names, the
 * fields and the numbers of branch `main`; with NAAICE_NEXT defined, here or by -DNAAICE_NEXT, those of branch `next`,
 * whose struct is another. One program may link parts that were compiled with either.
 *
 * A call goes like this:
 *
 *   naaice_init_communication_context, naaice_setup_connection,
 *   naaice_set_input_mr, naaice_set_output_mr, naaice_set_singlesend_mr, naaice_set_internal_mrs,
 *   naaice_register_mrs, naaice_set_bytes_to_send, naaice_set_immediate,
 *   naaice_do_mrsp, naaice_do_data_transfer (as often as wanted), naaice_disconnect_and_cleanup
 *
 * For all functions:
 *
 * - They return 0, or -1. Then naaice_last_error says why, and so does a line on standard error, unless ulog.h's level
 *   is above ULOG_LEVEL_ERROR. In a wrong state they change nothing and return -1.
 * - NULL, pointers to freed contexts and pointers to something else are refused. A context is used by one thread at a
 *   time; a call that finds it in use by another is refused.
 * - No signal is used, and nothing waits without end for an accelerator that is gone.
 * - Parameters are registered where they are; nothing is copied. They stay the program's, and must stay allocated,
 *   until the clean-up. From the start of a data transfer until its end nobody may touch them.
 * - Parameters may start anywhere and have 0 bytes, up to 2 GiB each. There may be 31 of them, internal regions
 *   included. No input, or no output, is possible too, though not with the servers of NAAICE. Parameters may overlap:
 *   outputs arrive in the order of their indices, so where two overlap the one with the higher index is what remains.
 *
 * What differs from NAAICE: docs/tutorials/from-naaice.md of naa. In short, pointers to structs of rdma-core
 * in the context are NULL, since there may be no rdma-core. */
#ifndef NAAICE_H
#define NAAICE_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ulog.h"

/* Programs that look into structs of rdma-core define NAAICE_WITH_RDMA_CORE, or include <rdma/rdma_cma.h> before this
 * header. For all others what they need is declared here, and rdma-core need not be installed. */
#if defined(NAAICE_WITH_RDMA_CORE) || defined(RDMA_CMA_H)
#if defined(__has_include)
#if !__has_include(<rdma/rdma_cma.h>)
#error "NAAICE_WITH_RDMA_CORE needs rdma-core's headers: install librdmacm-dev, or do not define it"
#endif
#endif
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#endif

#ifdef __cplusplus
#include <atomic>
extern "C" {
#endif

/* ---- rdma-core ---------------------------------------------------------------------------------------------- */

#ifndef RDMA_CMA_H

struct ibv_comp_channel;
struct ibv_context;
struct ibv_cq;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;
struct ibv_wc;
struct rdma_cm_id;
struct rdma_event_channel;

enum rdma_cm_event_type {
  RDMA_CM_EVENT_ADDR_RESOLVED,
  RDMA_CM_EVENT_ADDR_ERROR,
  RDMA_CM_EVENT_ROUTE_RESOLVED,
  RDMA_CM_EVENT_ROUTE_ERROR,
  RDMA_CM_EVENT_CONNECT_REQUEST,
  RDMA_CM_EVENT_CONNECT_RESPONSE,
  RDMA_CM_EVENT_CONNECT_ERROR,
  RDMA_CM_EVENT_UNREACHABLE,
  RDMA_CM_EVENT_REJECTED,
  RDMA_CM_EVENT_ESTABLISHED,
  RDMA_CM_EVENT_DISCONNECTED,
  RDMA_CM_EVENT_DEVICE_REMOVAL,
  RDMA_CM_EVENT_MULTICAST_JOIN,
  RDMA_CM_EVENT_MULTICAST_ERROR,
  RDMA_CM_EVENT_ADDR_CHANGE,
  RDMA_CM_EVENT_TIMEWAIT_EXIT
};

struct rdma_conn_param {
  const void *private_data;
  uint8_t private_data_len;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t srq;
  uint32_t qp_num;
};

struct rdma_cm_event {
  struct rdma_cm_id *id;
  struct rdma_cm_id *listen_id;
  enum rdma_cm_event_type event;
  int status;
  union {
    struct rdma_conn_param conn;
    uint64_t reserved[7];
  } param;
};

#endif /* RDMA_CMA_H */

/* ---- Constants ---------------------------------------------------------------------------------------------- */

#define SERVER_CONNECTION_PORT 12345
#define RX_DEPTH 1025
#define POLLING_TIMEOUT 500 /* ms: how long a look at connection events waits */
#define DEFAULT_TIMEOUT 3600 /* s: the timeout of a new context */
#define DEFAULT_RETRY_COUNT 7
#define MAX_MRS 32 /* of the library; 31 are possible */
#define MR_SIZE_MRSP (sizeof(struct naaice_mr_advertisement_request) * MAX_MRS)
#define IMMEDIATE_OFFSET 8

#ifndef ntohll
#define ntohll(x) be64toh(x)
#endif
#ifndef htonll
#define htonll(x) htobe64(x)
#endif

enum message_id { MSG_MR_ERR = 0x00, MSG_MR_AAR = 0x01, MSG_MR_A = 0x02, MSG_MR_R = 0x03 };

enum naaice_mrflags_value {
  MRFLAG_INTERNAL = 0x01,
  MRFLAG_SINGLESEND = 0x02,
  MRFLAG_INPUT = 0x04,
  MRFLAG_OUTPUT = 0x08
};

/* Programs compare states: a later one has a higher number. Loops that wait end at NAAICE_ERROR too. */
typedef enum {
  NAAICE_INIT = 0,
  NAAICE_READY = 1,
  NAAICE_CONNECTED = 2,
  NAAICE_DISCONNECTED = 3,
  NAAICE_MRSP_SENDING = 10,
  NAAICE_MRSP_RECEIVING = 11,
  NAAICE_MRSP_DONE = 12,
  NAAICE_DATA_SENDING = 20,
  NAAICE_CALCULATING = 21,
  NAAICE_DATA_RECEIVING = 22,
  NAAICE_FINISHED = 30,
  NAAICE_ERROR = 40
} naaice_communication_state;

/* ---- Messages and regions ----------------------------------------------------------------------------------- */

struct naaice_mr_hdr {
  uint8_t type;
};

struct naaice_mr_dynamic_hdr {
  uint8_t count;
  uint8_t padding[2];
};

struct naaice_mr_error {
  uint8_t code;
  uint8_t padding[2];
};

struct naaice_mr_request {
  uint64_t size;
};

struct naaice_mr_advertisement {
  uint64_t addr;
  uint32_t rkey;
  uint32_t size;
};

struct naaice_mr_advertisement_request {
  union {
    uint64_t mr_info;
    uint8_t mr_info_bytearray[8];
  };
  uint64_t addr;
  uint32_t rkey;
  uint32_t size;
};

/* A parameter on the accelerator. to_write: it is an output. */
struct naaice_mr_peer {
  union {
    uint64_t addr;
    uint8_t fpgaaddr[8];
  };
  uint32_t rkey;
  size_t size;
  bool to_write;
  bool single_send;
};

/* A parameter here. to_write: it is an input that will be sent. ibv is NULL. */
struct naaice_mr_local {
  struct ibv_mr *ibv;
  char *addr;
  size_t size;
  bool to_write;
  bool single_send;
};

/* A region on the accelerator only. */
struct naaice_mr_internal {
  union {
    uint64_t addr;
    uint8_t fpgaaddr[8];
  };
  size_t size;
};

struct naaice_rpc_metadata {
  uintptr_t return_addr;
};

/* Programs may read all of it, and write timeout, retry_count, fncode and the immediate. It is made by
 * naaice_init_communication_context. naaice_disconnect_and_cleanup gives back what its pointers lead to and leaves the
 * struct itself to the program, as NAAICE does: it may be read then, and freed by free(). */
struct naaice_communication_context {
  struct rdma_cm_id *id;                 /* NULL on a host */
  struct rdma_event_channel *ev_channel; /* NULL on a host */
  struct ibv_context *ibv_ctx;           /* NULL */
  struct ibv_pd *pd;                     /* NULL */
  struct ibv_comp_channel *comp_channel; /* NULL */
  struct ibv_cq *cq;                     /* NULL */
  struct ibv_qp *qp;                     /* NULL */
  double timeout;                        /* s, fractions too; 0 and less: none */
  uint8_t retry_count;                   /* read when the connection is made */
  uint16_t max_inline_data;
#ifdef __cplusplus
  std::atomic<naaice_communication_state> state;
#else
  _Atomic(naaice_communication_state) state;
#endif
  struct naaice_mr_local *mr_local_data;
  uint8_t no_local_mrs;
  uint8_t mr_return_idx;
  struct naaice_mr_peer *mr_peer_data;
  uint8_t no_peer_mrs;
  struct naaice_mr_local *mr_local_message; /* NULL */
  struct naaice_mr_internal *mr_internal;
  uint8_t no_internal_mrs;
  uint8_t fncode;
#ifdef NAAICE_NEXT
  uint32_t response_user_immediate; /* 24 bits that the function answered with */
  uint8_t rdma_writes_done;
  bool response_received;
#else
  uint8_t naa_returncode; /* 0, or why the function failed; 255 for all that do not fit */
  uint8_t rdma_writes_done;
#endif
  uint32_t bytes_received; /* of the last output */
  uint8_t no_input_mrs;    /* that will be sent */
  uint8_t no_output_mrs;
  uint32_t no_rpc_calls;
  union {
    uint32_t immediate;
    uint8_t immediate_bytearr[4];
  };
  uint8_t connection_id;
};

/* ---- Functions ---------------------------------------------------------------------------------------------- */

#ifdef NAAICE_NEXT
#define naaice_init_communication_context naaice_next_init_communication_context
#endif

/* Why the last function failed on this thread; empty before the first failure, valid until the next. Not of NAAICE. */
const char *naaice_last_error(void);

/* A new context, in state INIT. Names are resolved and the device is opened: that of local_address, or with NULL or ""
 * that of NAA_LOCAL_IP, or else where the route begins. On the accelerator addresses are asked for from addr_offset on,
 * internal regions first, each in whole pages of 4096 bytes. fncode is 1 to 127. *comm_ctx is NULL after a failure. */
int naaice_init_communication_context(struct naaice_communication_context **comm_ctx, uint64_t addr_offset,
                                      size_t *param_sizes, char **params, unsigned int params_amount,
                                      unsigned int internal_mr_amount, size_t *internal_mr_sizes, uint8_t fncode,
                                      const char *local_address, const char *remote_address,
                                      uint16_t remote_cm_port);

#ifdef NAAICE_NEXT
/* The same with an address, below 2^56, for each region, internal ones first; so are mr_sizes. */
int naaice_init_communication_context_with_addresses(struct naaice_communication_context **comm_ctx,
                                                     uint64_t *naa_addresses, char **params,
                                                     unsigned int params_amount, size_t *mr_sizes,
                                                     unsigned int internal_mr_amount, uint8_t fncode,
                                                     const char *local_address, const char *remote_address,
                                                     uint16_t remote_cm_port);
#endif

/* Connects, within 10 s, or the context's timeout if that is less. State CONNECTED, or ERROR. */
int naaice_setup_connection(struct naaice_communication_context *comm_ctx);

/* The same step by step: poll for an event, for up to 500 ms (-1 if none came), and have it handled. ev is not used.
 * Handlers leave events alone that are not theirs, and return 0. */
int naaice_poll_connection_event(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev,
                                 struct rdma_cm_event *ev_cp);
int naaice_handle_addr_resolved(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev);
int naaice_handle_route_resolved(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev);
int naaice_handle_connection_established(struct naaice_communication_context *comm_ctx,
                                         struct rdma_cm_event *ev);
/* All events that end a connection: state ERROR, -1. The clean-up is for the program. */
int naaice_handle_error(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev);
/* Always -1. */
int naaice_handle_other(struct naaice_communication_context *comm_ctx, struct rdma_cm_event *ev);
int naaice_poll_and_handle_connection_event(struct naaice_communication_context *comm_ctx);

/* What naaice_handle_addr_resolved does. */
int naaice_init_rdma_resources(struct naaice_communication_context *comm_ctx);

/* Registers the parameters; after the connection is set up. */
int naaice_register_mrs(struct naaice_communication_context *comm_ctx);

/* Other parameters; their roles are to be set again. Before naaice_init_mrsp, as the four that follow. */
int naaice_set_parameter_mrs(struct naaice_communication_context *comm_ctx, unsigned int n_parameter_mrs,
                             uint64_t *local_addrs, uint64_t *remote_addrs, size_t *sizes);
int naaice_set_input_mr(struct naaice_communication_context *comm_ctx, unsigned int input_mr_idx);
int naaice_set_output_mr(struct naaice_communication_context *comm_ctx, unsigned int output_mr_idx);
/* An input that is sent by the first data transfer only, and stays on the accelerator. */
int naaice_set_singlesend_mr(struct naaice_communication_context *comm_ctx, unsigned int singlesend_mr_idx);
/* Replaces the internal regions. */
int naaice_set_internal_mrs(struct naaice_communication_context *comm_ctx, unsigned int n_internal_mrs,
                            uint64_t *addrs, size_t *sizes);

/* From now on only the first number_bytes of an input are sent: 0 for none of them, negative for all again. */
int naaice_set_bytes_to_send(struct naaice_communication_context *comm_ctx, int mr_idx, int number_bytes);

/* 3 bytes that the function may look at, from now on. */
int naaice_set_immediate(struct naaice_communication_context *comm_ctx, uint8_t *imm_bytes);

/* Asks the accelerator for the regions and returns, in state MRSP_SENDING; poll until MRSP_DONE. */
int naaice_init_mrsp(struct naaice_communication_context *comm_ctx);
/* The same until MRSP_DONE, for the context's timeout at most. However it is waited for, an accelerator that has not
 * agreed after 20 s, and 2 s more for each GiB, is given up: state ERROR. */
int naaice_do_mrsp(struct naaice_communication_context *comm_ctx);

/* Calls the function and returns, in state DATA_SENDING; poll until FINISHED. */
int naaice_init_data_transfer(struct naaice_communication_context *comm_ctx);
/* The same until FINISHED, or -1 when the context's timeout has passed. The call goes on then. */
int naaice_do_data_transfer(struct naaice_communication_context *comm_ctx);

/* Takes what has happened. 0 whether or not the state has changed; -1 after an error, or where nothing is awaited.
 * Returns at once, or, when it is called over and over with nothing in between, after at most 100 ms; an answer ends
 * the wait. So loops around it take no CPU. */
int naaice_poll_cq_nonblocking(struct naaice_communication_context *comm_ctx);
/* Sleeps until MRSP_DONE or FINISHED; -1 when the context's timeout has passed. */
int naaice_poll_cq_blocking(struct naaice_communication_context *comm_ctx);
/* The same without sleeping. */
int naaice_poll_cq_busy(struct naaice_communication_context *comm_ctx);

/* A completion from the program cannot be one of this library's queue. One that failed ends the context; others are
 * refused. */
int naaice_handle_work_completion(struct ibv_wc *wc, struct naaice_communication_context *comm_ctx);

/* MSG_MR_AAR: what naaice_init_mrsp does. MSG_MR_ERR: ends the connection, which says the same; state ERROR. */
int naaice_send_message(struct naaice_communication_context *comm_ctx, enum message_id message_type,
                        uint8_t errorcode);
/* What naaice_init_data_transfer does, for this function. 0 tells of an error by ending the connection. */
int naaice_write_data(struct naaice_communication_context *comm_ctx, uint8_t fncode);
/* Nothing: receives are always posted. */
int naaice_post_recv_mrsp(struct naaice_communication_context *comm_ctx);
int naaice_post_recv_data(struct naaice_communication_context *comm_ctx);

/* Disconnects, in every state, and gives back all but the struct. A call that is under way is given up. */
int naaice_disconnect_and_cleanup(struct naaice_communication_context *comm_ctx);

#ifdef __cplusplus
}
#endif

#endif /* NAAICE_H */
