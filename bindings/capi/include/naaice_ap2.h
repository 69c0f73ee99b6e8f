/* The middleware of NAAICE's communication library, on naa: calls by function code, without addresses.
 *
 * The accelerators come from the environment variable NAA_SPEC,
 *
 *   NAA_SPEC=<address>:<port>:<function code>:<inputs>[,...]
 *
 * with an IPv4 address or an IPv6 address in brackets; an empty port is 12345. naa_create takes the first entry for its
 * function and number of inputs that is not in use, and naa_finalize gives it back. An entry that cannot be read makes
 * naa_create fail. NAA_LOCAL_IP names the local address to use. NAA_TIMEOUT, a number of seconds such as 2.5, limits
 * connecting, and each call from naa_invoke on: then it fails and its state is NAAICE_ERROR.
 *
 * What naaice.h says of results, pointers, threads and memory goes for these functions too. naaice_last_error has the
 * reason for a -1. With NAAICE_NEXT the structs are those of branch `next`. */
#ifndef NAAICE_AP2_H
#define NAAICE_AP2_H

#include "naaice.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t naa_function_code_t;

#ifndef NAAICE_NEXT
/* 0x10 to 0x3f are this accelerator's own (naa's documentation has them), 0x40 to 0x7f those of plug-ins. */
enum naa_error
#ifdef __cplusplus
    : int /* with room for all of them, as in C */
#endif
{ NAA_SUCCESS = 0x00,
  SOCKET_UNAVAIL = 0x01,
  KERNEL_TIMEOUT = 0x02 };
#endif

/* single_send: sent with the first call only. On an output it makes that an input too. */
typedef struct {
  void *addr;
  size_t size;
  bool single_send;
} naa_param_t;

typedef struct {
  naa_function_code_t function_code;
  struct naaice_communication_context *comm_ctx;
} naa_handle;

typedef struct {
  naaice_communication_state state;
#ifdef NAAICE_NEXT
  uint32_t user_immediate;
#else
  enum naa_error naa_error;
#endif
  uint64_t bytes_received; /* of the last output */
} naa_status;

#ifdef NAAICE_NEXT
#define naa_create naa_next_create
#endif

/* Connects to an accelerator for the function, 1 to 127, and agrees with it on the parameters. Regions are the inputs
 * in order, then the outputs. An output that starts where an input does is the same region: as long as the longer of
 * both, while no more than the input is sent. */
int naa_create(const naa_function_code_t function_code, naa_param_t *input_params, unsigned int input_amount,
               naa_param_t *output_params, unsigned int output_amount, naa_handle *handle);

/* Starts a call and returns. */
int naa_invoke(naa_handle *handle);

/* Sets *flag if the call has ended; naaice_poll_cq_nonblocking says how long that takes. status may be NULL. After -1 it
 * is told too, as far as there is a context. */
int naa_test(naa_handle *handle, bool *flag, naa_status *status);

/* Waits until the call has ended; -1 when handle->comm_ctx->timeout has passed. */
int naa_wait(naa_handle *handle, naa_status *status);

/* Disconnects, in every state, and frees the context. */
int naa_finalize(naa_handle *handle);

#ifdef __cplusplus
}
#endif

#endif /* NAAICE_AP2_H */
