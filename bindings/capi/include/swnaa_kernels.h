/* The function by which a NAAICE-compatible server in software finds its kernels. */
#ifndef NAAICE_SWNAA_KERNELS_H
#define NAAICE_SWNAA_KERNELS_H

#include <stdint.h>

#include "naaice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the program. Puts the kernel of function fncode, 1 to 127, into *worker_func and leaves NULL there for
 * codes it does not know; their hosts are told so (return code 0x10), and may go on. What it returns does not matter.
 *
 * A kernel finds its data in comm_ctx->mr_local_data[i].addr and .size (i < comm_ctx->no_local_mrs, in the order of
 * the host's regions), memory that only exists here in comm_ctx->mr_internal[i], and the 24 bits of the host's
 * naaice_set_immediate in the upper 24 bits of comm_ctx->immediate. The host cannot reach the data meanwhile. */
int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *));

#ifdef __cplusplus
}
#endif

#endif
