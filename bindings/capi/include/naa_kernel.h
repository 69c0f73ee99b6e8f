/*
 * naa_kernel.h: functions of a network-attached accelerator, written in C or C++.
 *
 * A shared object with kernels includes this header, needs no library, and declares a table of what it offers:
 *
 *     static int32_t scale(naa_kernel_call *call) {
 *         double *values = (double *)call->data[0].address;
 *         for (uint64_t i = 0; i < call->data[0].size / sizeof *values; i++)
 *             values[i] *= 2.0;
 *         return 0;
 *     }
 *     static const naa_kernel_parameter scale_parameters[] = {
 *         {NAA_KERNEL_INOUT, NAA_KERNEL_F64, "values", "doubled in place"},
 *     };
 *     static const naa_kernel kernels[] = {
 *         {96, 1, "scale", "doubles numbers", scale_parameters, scale},
 *     };
 *     NAA_KERNELS(kernels)
 *
 *     cc -shared -fPIC -O2 -o libscale.so scale.c
 *     naa serve --kernels ./libscale.so
 *
 * `naa functions` lists the kernels beside the built-in functions; hosts call them by code.
 *
 * Where a kernel runs. The server never loads the library. Each session that calls a kernel gets a process of its own,
 * started at its first such call. It has loaded the library and maps the memory of that session, and of no other:
 *
 *   - Calls of a session come one after the other, on the main thread of its process. Kernels may use threads, but
 *     these must have finished with the call's data before the kernel returns.
 *   - Variables keep their values from call to call of one session, as long as its process lives, and are never shared
 *     between sessions. Do not rely on them for results: a crash or a built-in function called in the session ends the
 *     process, and the next call starts with a new one.
 *   - A crash (SIGSEGV, abort(), exit(), an exception that is not caught) costs its call: the host gets return code
 *     0x14 at once, the server's log names the kernel and the signal, and the next call gets a new process.
 *   - A kernel that is not done when the call's time is over (`naa serve --call-time`) is killed; the host gets 0x02.
 *   - Standard input and output are /dev/null; standard error is the server's.
 *   - Kernels must not fork. A process that a kernel forks cannot reach the memory of the session: an access ends it
 *     with SIGSEGV. It is killed with the kernel's process unless it leaves the process group. It cannot answer for the
 *     kernel's process: if that one ends, the call fails at once. Programs may be started (posix_spawn, system).
 *
 * Where the server uses a NIC (`--provider verbs`), a host keeps its access to what it sends: one that breaks the protocol
 * can change it while a kernel reads it. A kernel that checks an input, a length for example, copies it first and uses
 * the copy. Built-in functions work on copies there.
 *
 * The processes protect the server and other sessions from mistakes. They run as the server's user, so they are no
 * protection from a library that means harm.
 *
 * This is version 1 of the interface. A library says which version it was compiled for; a server that does not know
 * it refuses the library by name. Structures that libraries provide carry their sizes in the table, so later versions
 * of this header can append to them. naa_kernel_call carries its own: look at `struct_size` before using members that
 * are younger than version 1.
 */
#ifndef NAA_KERNEL_H
#define NAA_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. */
#define NAA_KERNEL_ABI 1u

/* Codes that kernels may have. */
#define NAA_KERNEL_FIRST_CODE 96
#define NAA_KERNEL_LAST_CODE 126

/* Which way data goes, as its host mapped it. */
enum {
    NAA_KERNEL_INPUT = 0,   /* sent by the host before the call */
    NAA_KERNEL_OUTPUT = 1,  /* returned to the host after a call that returns 0 */
    NAA_KERNEL_INOUT = 2,   /* both */
    NAA_KERNEL_INTERNAL = 3 /* scratch on the accelerator: zeroed, then keeps its bytes from call to call of a session */
};

/* What a parameter consists of: told to users, not checked. Numbers are little-endian. */
enum {
    NAA_KERNEL_BYTES = 0,
    NAA_KERNEL_U32 = 3,
    NAA_KERNEL_U64 = 4,
    NAA_KERNEL_F32 = 5,
    NAA_KERNEL_F64 = 6,
    NAA_KERNEL_COMPLEX_F64 = 7 /* pairs of double */
};

/* What a kernel may return besides 0: 0x10 to 0x7f, of which 0x10 to 0x3f have meanings. The host gets the code and
 * nothing else: the protocol answers a failed call with its code and no bytes, so neither outputs nor call->text reach
 * the host. The server logs each failed call of a kernel as a warning, which is shown unless the user has asked for less:
 * the host's address, the kernel's name, the code or the signal, and call->text. A flood of such lines is thinned out.
 * A kernel that has to tell its host more than a code returns 0 and puts it into an output. Every other value
 * is told as NAA_KERNEL_ERROR_INTERNAL. */
enum {
    NAA_KERNEL_ERROR_BAD_ARGUMENTS = 0x11,    /* arguments or sizes do not fit the kernel */
    NAA_KERNEL_ERROR_MALFORMED_INPUT = 0x12,  /* the input data cannot be read */
    NAA_KERNEL_ERROR_OUTPUT_TOO_SMALL = 0x13, /* a larger output is needed */
    NAA_KERNEL_ERROR_INTERNAL = 0x14,         /* the kernel failed; the server's log says more */
    NAA_KERNEL_ERROR_OVER_LIMIT = 0x16,       /* more was asked for than the kernel can do */
    NAA_KERNEL_ERROR_FIRST_OWN = 0x40,        /* 0x40 to 0x7f have no meaning but yours */
    NAA_KERNEL_ERROR_LAST_OWN = 0x7f
};

/* A parameter or an internal region of the session during a call. */
typedef struct naa_kernel_data {
    void *address;      /* on a page boundary, or, where the host chose a layout in which parameters share a region, on one
                           of 64 bytes; valid during the call only; never NULL, also where size is 0 */
    uint64_t size;      /* bytes; touching the page behind the last one crashes */
    uint64_t produced;  /* bytes of an output that are a result: `size` unless the kernel sets fewer. Only these are
                           sent. Ignored for inputs and internals. More than `size` makes the call fail. */
    uint32_t direction; /* NAA_KERNEL_INPUT, _OUTPUT, _INOUT or _INTERNAL */
    uint32_t reserved;  /* 0 */
} naa_kernel_data;

/* A call. */
typedef struct naa_kernel_call {
    uint32_t struct_size;     /* bytes of this structure */
    uint32_t user;            /* the 24 bits that the host passes along */
    uint32_t data_count;      /* elements of `data` */
    uint32_t parameter_count; /* the first so many are parameters; behind them are the internal regions */
    naa_kernel_data *data;    /* all regions of the session, in the order of the host's mapping */
    char *text;               /* for the server's log, not for the host, if the kernel does not return 0: UTF-8, ends with
                                 a zero byte;
                                 snprintf(call->text, call->text_size, ...) */
    uint32_t text_size;       /* bytes at `text` */
    uint32_t reserved;        /* 0 */
} naa_kernel_call;

/* Computes. Returns 0, or a return code for the host. */
typedef int32_t (*naa_kernel_compute)(naa_kernel_call *call);

/* What a kernel says about one of its parameters. */
typedef struct naa_kernel_parameter {
    uint32_t direction;      /* NAA_KERNEL_INPUT, _OUTPUT, _INOUT or _INTERNAL */
    uint32_t kind;           /* NAA_KERNEL_BYTES, ... */
    const char *name;        /* up to 255 bytes of UTF-8 without control characters */
    const char *description; /* the same; may be NULL */
} naa_kernel_parameter;

/* A kernel. What it declares is checked before each call: data[i] exists and goes the way of parameters[i], where INOUT
 * may serve as INPUT or OUTPUT; and there are as many internal regions as it declares, which come last in `parameters` too.
 * Else the host gets NAA_KERNEL_ERROR_BAD_ARGUMENTS. A session may have more than is declared, for other kernels; so
 * internal region k is data[call->parameter_count + k]. Sizes are the kernel's to check. With nothing declared any
 * data will do. */
typedef struct naa_kernel {
    uint32_t code;                          /* 96 to 126, each once per server */
    uint32_t parameter_count;               /* up to 255 */
    const char *name;                       /* up to 255 bytes of UTF-8 without control characters */
    const char *description;                /* one line, up to 1000 bytes; may be NULL */
    const naa_kernel_parameter *parameters; /* may be NULL if there are none */
    naa_kernel_compute compute;
} naa_kernel;

/* What a library offers. NAA_KERNELS makes one. */
typedef struct naa_kernel_table {
    uint32_t abi;            /* NAA_KERNEL_ABI */
    uint32_t kernel_size;    /* sizeof(naa_kernel) */
    uint32_t parameter_size; /* sizeof(naa_kernel_parameter) */
    uint32_t kernel_count;
    const naa_kernel *kernels;
} naa_kernel_table;

#if defined(__GNUC__)
#define NAA_KERNEL_EXPORT __attribute__((visibility("default")))
#else
#define NAA_KERNEL_EXPORT
#endif

/* The one symbol that is looked up in the library. The table must stay where it is. */
NAA_KERNEL_EXPORT const naa_kernel_table *naa_kernel_get_table(void);

#ifdef __cplusplus
}
#define NAA_KERNEL_EXTERN extern "C"
#else
#define NAA_KERNEL_EXTERN
#endif

/* Makes the table of an array of naa_kernel; once per library. */
#define NAA_KERNELS(array)                                                                          \
    NAA_KERNEL_EXTERN NAA_KERNEL_EXPORT const naa_kernel_table *naa_kernel_get_table(void) {        \
        static const naa_kernel_table table = {                                                     \
            NAA_KERNEL_ABI,                                                                         \
            (uint32_t)sizeof(naa_kernel),                                                           \
            (uint32_t)sizeof(naa_kernel_parameter),                                                 \
            (uint32_t)(sizeof(array) / sizeof((array)[0])),                                         \
            array,                                                                                  \
        };                                                                                          \
        return &table;                                                                              \
    }

#endif
