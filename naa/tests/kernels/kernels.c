/* Kernels for the tests: well-behaved ones, and every other sort. With -DWRONG=n a table that must be refused. */
#define _GNU_SOURCE
#include <naa_kernel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef WRONG
#define WRONG 0
#endif

static double *doubles(naa_kernel_call *call, int at) { return (double *)call->data[at].address; }

/* c = a b, square, row-major; user: how many rows. */
static int32_t multiply(naa_kernel_call *call) {
    uint64_t n = call->user, bytes = n * n * sizeof(double);
    double *a = doubles(call, 0), *b = doubles(call, 1), *c = doubles(call, 2);
    if (call->data[0].size < bytes || call->data[1].size < bytes || call->data[2].size < bytes) {
        snprintf(call->text, call->text_size, "%u rows do not fit", call->user);
        return NAA_KERNEL_ERROR_BAD_ARGUMENTS;
    }
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint64_t k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    return 0;
}

/* Adds 1 to every byte of every region. */
static int32_t increment(naa_kernel_call *call) {
    for (uint32_t at = 0; at < call->data_count; at++)
        for (uint64_t i = 0; i < call->data[at].size; i++)
            ((uint8_t *)call->data[at].address)[i]++;
    return 0;
}

/* input, two outputs, internal: the first 3 bytes of one are the calls counted, input added up; the other its copy. */
static int32_t several(naa_kernel_call *call) {
    if (call->struct_size < sizeof *call || call->data_count != 4 ||
        call->parameter_count != 3 || call->data[3].direction != NAA_KERNEL_INTERNAL ||
        call->data[2].direction != NAA_KERNEL_OUTPUT ||
        ((uintptr_t)call->data[0].address & 4095) != 0)
        return NAA_KERNEL_ERROR_INTERNAL;
    uint8_t *in = call->data[0].address, *sum = call->data[1].address, *calls = call->data[3].address;
    calls[0]++;
    sum[0] = calls[0], sum[1] = 0, sum[2] = (uint8_t)call->user;
    for (uint64_t i = 0; i < call->data[0].size; i++)
        sum[1] += in[i];
    call->data[1].produced = 3;
    memcpy(call->data[2].address, in, call->data[2].size);
    return 0;
}

/* input: which sort of harm. output: this process. */
static int32_t harm(naa_kernel_call *call) {
    uint8_t *in = call->data[0].address, *out = call->data[1].address;
    uint32_t pid = (uint32_t)getpid();
    struct rlimit core, memory;
    pid_t child;
    int status;
    switch (in[0]) {
    case 0:
        getrlimit(RLIMIT_CORE, &core);
        getrlimit(RLIMIT_DATA, &memory);
        memcpy(out, &pid, 4);
        out[4] = core.rlim_max == 0 && getppid() != 1;
        out[5] = memory.rlim_max == RLIM_INFINITY ? 0 : (uint8_t)(memory.rlim_max >> 20);
        return 0;
    case 1:
        *(volatile int *)0 = 1;
        return 0;
    case 2:
        abort();
    case 3:
        exit(0);
    case 4:
        for (volatile int i = 0;; i++) {
        }
    case 5: /* the page behind */
        out[(call->data[1].size + 4095) / 4096 * 4096] = 1;
        return 0;
    case 6: /* and before */
        out[-1] = 1;
        return 0;
    case 7:
        snprintf(call->text, call->text_size, "as it was told\n");
        return 0x41;
    case 8:
        return 7;
    case 9:
        call->data[1].produced = call->data[1].size + 1;
        return 0;
    case 10: /* leaves the socket and goes on */
        close(3);
        for (;;)
            pause();
    case 11: /* speaks for the server's library */
        send(3, "\x03nonsense", 9, 0);
        return 0;
    case 12: /* more than the server asked for: the answer to the next call */
        memset(out, 0, call->data[1].size);
        send(3, "\x02", 1, 0);
        return 0;
    case 13:
        raise(SIGKILL);
        return 0;
    case 14: /* grows and shrinks nothing: the files are sealed and closed */
        for (int fd = 4; fd < 4096; fd++)
            if (ftruncate(fd, 0) == 0)
                return NAA_KERNEL_ERROR_INTERNAL;
        memset(call->text, 'x', call->text_size); /* with no end */
        memset(out, 7, call->data[1].size);
        return 0;
    case 15:
        return malloc(1u << 30) == NULL ? 0x42 : 0x43;
    case 16: /* leaves a process that keeps the socket open, and is gone */
        if (fork() == 0)
            for (;;)
                pause();
        _exit(7);
    case 17: /* has another process answer for it */
        if (fork() == 0)
            return 0;
        _exit(7);
    case 18: /* what it forks reaches no memory of the session */
        if ((child = fork()) == 0) {
            out[8] = 1;
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return NAA_KERNEL_ERROR_INTERNAL;
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 0 : 0x44;
    default:
        return NAA_KERNEL_ERROR_MALFORMED_INPUT;
    }
}

static const naa_kernel_parameter multiply_parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "a", "n rows of n"},
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "b", "n rows of n"},
    {NAA_KERNEL_OUTPUT, NAA_KERNEL_F64, "c", NULL},
};
static const naa_kernel_parameter harm_parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_BYTES, "sort", "one byte"},
    {NAA_KERNEL_OUTPUT, WRONG == 1 ? 99 : NAA_KERNEL_BYTES, "pid", "of the process"},
};

static const naa_kernel_parameter several_parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_BYTES, "data", NULL},
    {WRONG == 13 ? NAA_KERNEL_INTERNAL : NAA_KERNEL_OUTPUT, NAA_KERNEL_BYTES, "sums", NULL},
    {WRONG == 14 ? 4 : NAA_KERNEL_OUTPUT, NAA_KERNEL_BYTES, "copy", NULL},
    {NAA_KERNEL_INTERNAL, NAA_KERNEL_BYTES, "calls", NULL},
};

static const naa_kernel kernels[] = {
    {WRONG == 2 ? 95 : 126, 2, "harm", "does harm", harm_parameters, harm},
    {96, 3, "multiply", "product of two square matrices", multiply_parameters, multiply},
    {WRONG == 3 ? 96 : 97, 0, WRONG == 4 ? NULL : WRONG == 5 ? "a\nb" : "increment-all", NULL, NULL, increment},
    {98, 4, "several", "counts calls", WRONG == 6 ? NULL : several_parameters, WRONG == 7 ? NULL : several},
};

#if WRONG < 8 || WRONG == 13 || WRONG == 14
NAA_KERNELS(kernels)
#elif WRONG == 9
const naa_kernel_table *naa_kernel_get_table(void) {
    static const naa_kernel_table table = {2, 8, 8, 0, 0};
    return &table;
}
#elif WRONG == 10
const naa_kernel_table *naa_kernel_get_table(void) { return 0; }
#elif WRONG == 11
const naa_kernel_table *naa_kernel_get_table(void) { return (const naa_kernel_table *)8; }
#elif WRONG == 12
__attribute__((constructor)) static void never(void) { exit(3); }
NAA_KERNELS(kernels)
#endif

const void *keeps_everything_used[] = {kernels};
