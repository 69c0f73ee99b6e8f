/*
 * naa.h: calls functions of network-attached accelerators.
 *
 * A program connects to an accelerator with regions, which are parts of its own memory. A call sends the inputs by RDMA
 * straight into the accelerator's memory, has one of its functions run on them, and receives the outputs straight into
 * the program's.
 *
 *     #include <naa.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *         unsigned char numbers[4] = {1, 2, 3, 4};
 *         const naa_region regions[] = {{numbers, sizeof numbers, NAA_INOUT}};
 *         naa_session *session;
 *         if (naa_session_connect("10.9.0.1", regions, 1, NULL, &session) != NAA_OK
 *             || naa_call(session, naa_function_code("increment"), 0, 5000, NULL) != NAA_OK) {
 *             fprintf(stderr, "%s\n", naa_last_error());
 *             return 1;
 *         }
 *         printf("%d %d %d %d\n", numbers[0], numbers[1], numbers[2], numbers[3]);  // 2 3 4 5
 *         return naa_session_close(session) != NAA_OK;
 *     }
 *
 * Build: cc program.c $(pkg-config --cflags --libs naa)
 *
 * Errors. Functions return NAA_OK or a negative naa_result; naa_last_error() then has a text for people, of this
 * thread. No function ends the program or uses signals, and none prints anything but the log (below). NULL, handles that were freed and numbers out of range are
 * refused; so is memory that is not mapped, as far as the kernel can tell.
 *
 * Threads. Any number of threads may use sessions at once, each session one thread at a time; a session that another
 * thread is using is refused with NAA_ERROR_STATE. A session may be handed from thread to thread. After fork() sessions
 * are the parent's; a child connects anew.
 *
 * Time. Waits take milliseconds: 0 only looks, a negative number is no limit. A wait that ends by NAA_ERROR_TIMEOUT leaves the call
 * running. An accelerator that dies during a call is noticed in about naa_options.probe_interval_ms + .silence_ms.
 *
 * A call may take as long as it likes while its accelerator is alive, unless naa_options.call_timeout_ms or the environment
 * variable NAA_TIMEOUT, a number of seconds such as 2.5, limits it.
 *
 * Log. Warnings go to standard error: one if a call takes more than 10 s, which names the accelerator and the function and says
 * whether the accelerator answers probes. NAA_LOG=off switches them off, NAA_LOG=info or debug says more.
 *
 * Many calls at once. Connect several sessions, start a call on each, and take the results by naa_call_wait_any(), by
 * naa_call_wait_all(), or in an event loop by naa_session_fd().
 *
 * Memory. Regions are used where they are, without a copy. Between calls they are the program's; from naa_call_start() until the
 * end of the call was reported, the program must not write inputs nor touch outputs. They stay registered with the
 * network device until the session is closed. naa_buffer keeps memory registered from one session to the next.
 *
 * Trust. The embedded stack takes the accelerator's access to outputs back with the end of each call. NICs do not: over
 * them the accelerator can write outputs until the session is closed, and memory of a naa_buffer that was an output as
 * long as it is kept. One that breaks the protocol can change them while the program reads them. Copy what you check before
 * you check it, and use the copy, unless you trust the accelerator.
 *
 * Handles are no addresses: a debugger shows nothing behind them.
 *
 * `cargo xtask header` makes this file from bindings/capi/src/native. Change it there.
 */


#ifndef NAA_H
#define NAA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Sent to the accelerator with each call.
 */
#define NAA_INPUT 1

/**
 * Received with each answer.
 */
#define NAA_OUTPUT 2

/**
 * Both: sent with each call, then overwritten by the answer.
 */
#define NAA_INOUT 3

/**
 * An input that is sent with the first call of the session only and stays on the accelerator.
 */
#define NAA_SINGLE_SEND 4

/**
 * Memory on the accelerator only, kept from call to call; `addr` is NULL. This flag excludes all others.
 */
#define NAA_INTERNAL 8

/**
 * As NAA_PROVIDER says, else the one that fits the local address.
 */
#define NAA_PROVIDER_DEFAULT 0

/**
 * rdma-core: NICs, and the kernel's soft-RoCE.
 */
#define NAA_PROVIDER_VERBS 1

/**
 * This library's own RoCEv2 on UDP sockets.
 */
#define NAA_PROVIDER_EMBEDDED 2

/**
 * Poll for some 50 us, then sleep.
 */
#define NAA_WAIT_ADAPTIVE 0

/**
 * Never sleep: lowest latency, one core.
 */
#define NAA_WAIT_SPIN 1

/**
 * Sleep at once.
 */
#define NAA_WAIT_BLOCK 2

/**
 * An accelerator's answer has a return code: the released NAAICE library, `naa serve`, the FPGA.
 */
#define NAA_DIALECT_MAIN 0

/**
 * NAAICE's successor `next`: an answer has 24 bits for the user, and no return code. Only the status block of a
 * built-in function says that it failed.
 */
#define NAA_DIALECT_NEXT 1

/**
 * Each region of the session has one on the accelerator, and is written by a WRITE of its own. What every accelerator
 * knows; the others are for accelerators of this project (`naa serve`). One that does not take the layout gets this
 * one; naa_session_describe() tells.
 */
#define NAA_LAYOUT_SYMMETRIC 0

/**
 * One region on the accelerator, a WRITE each.
 */
#define NAA_LAYOUT_ASYMMETRIC 1

/**
 * One region on the accelerator. Inputs go in one WRITE that gathers them, outputs come in a WRITE each.
 */
#define NAA_LAYOUT_GATHERED 2

/**
 * One region on the accelerator. Outputs of up to `packed_bytes` are copied and come in one WRITE; so are inputs of up to a
 * sixteenth of that. Larger inputs go in the same WRITE without a copy, larger outputs come in a WRITE each.
 */
#define NAA_LAYOUT_PACKED 3

/**
 * What NAA_LAYOUT_RULE says, or a rule that was fitted to measurements, finds best for the sizes of the regions. See
 * `naa bench layouts`.
 */
#define NAA_LAYOUT_AUTO 4

/**
 * Calls may be started.
 */
#define NAA_SESSION_IDLE 0

/**
 * A call is under way.
 */
#define NAA_SESSION_RUNNING 1

/**
 * It ended by an error; close it.
 */
#define NAA_SESSION_OVER 2

/**
 * *index of naa_call_wait_any(): no call was under way.
 */
#define NAA_UNDEFINED (-1)

/**
 * Bytes of an argument block and of a status block.
 */
#define NAA_BLOCK_BYTES 64

/**
 * What a function returns: NAA_OK, or a negative number that says who has to act. naa_last_error() has the text.
 */
enum naa_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    NAA_OK = 0,
    /**
     * An argument cannot be used: NULL, a handle that is none or was freed, regions that make no session, memory
     * that is not mapped. Nothing happened.
     */
    NAA_ERROR_ARGUMENT = -1,
    /**
     * The session is in another state: a call is under way, or none is, or another thread is using the session. Nothing
     * happened.
     */
    NAA_ERROR_STATE = -2,
    /**
     * NAA_SPEC, NAA_LOCAL_IP, NAA_PROVIDER or NAA_TIMEOUT is not set, cannot be read, or has nothing free.
     */
    NAA_ERROR_ENVIRONMENT = -3,
    /**
     * This machine's network device or its driver failed, or there is none at the local address.
     */
    NAA_ERROR_DEVICE = -4,
    /**
     * Nobody answers at the accelerator's address, or no route leads there.
     */
    NAA_ERROR_UNREACHABLE = -5,
    /**
     * The accelerator refused the connection or the regions. The text has its reason.
     */
    NAA_ERROR_REFUSED = -6,
    /**
     * Time ran out. A call goes on and can be waited for again; connecting was given up.
     */
    NAA_ERROR_TIMEOUT = -7,
    /**
     * The accelerator broke the protocol. The session is over.
     */
    NAA_ERROR_PEER = -8,
    /**
     * The accelerator was lost: it ended the connection, answers no more, or did not finish a call within
     * naa_options.call_timeout_ms or NAA_TIMEOUT. The session is over.
     */
    NAA_ERROR_GONE = -9,
    /**
     * This machine has no memory for it.
     */
    NAA_ERROR_MEMORY = -10,
    /**
     * The function failed, says the accelerator; naa_outcome has its code. The session goes on.
     */
    NAA_ERROR_FUNCTION = -11,
    /**
     * The session was over before. Close it and connect again.
     */
    NAA_ERROR_OVER = -12,
    /**
     * A defect of this library. Please report it.
     */
    NAA_ERROR_INTERNAL = -13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum naa_result naa_result;
#else
typedef int32_t naa_result;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Memory for regions of many sessions, one after another or at once.
 *
 * Sessions whose regions lie inside such memory find it registered with the network device, which spares large
 * regions most of the time it takes to connect. Nothing else is different: give its address as naa_region.addr. Any
 * thread may use a buffer at any time.
 */
typedef struct naa_buffer naa_buffer;

/**
 * A connection to an accelerator with its regions. One call at a time runs on it; any number of sessions, also to
 * one accelerator, may run calls at once.
 */
typedef struct naa_session naa_session;

/**
 * Options of naa_session_connect(). A member that is 0 stands for its default, so `{ .struct_size = sizeof options }`
 * will do, and so will naa_options_init(). Later versions may append members.
 */
typedef struct naa_options {
    /**
     * sizeof(naa_options).
     */
    uint32_t struct_size;
    /**
     * NAA_PROVIDER_...
     */
    int32_t provider;
    /**
     * The local address to use, "10.9.0.2" or "fd00::2". NULL: NAA_LOCAL_IP, and if that is not set where the route to
     * the accelerator begins.
     */
    const char *local_address;
    /**
     * Connecting and agreeing on regions must be done within this many milliseconds. Default: NAA_TIMEOUT, a number of
     * seconds, and 10000 if that is not set.
     */
    int32_t setup_timeout_ms;
    /**
     * During a call, the accelerator is asked for a sign of life every so many milliseconds. Default 1000; -1 for
     * never: then its death during a call may go unnoticed for ever.
     */
    int32_t probe_interval_ms;
    /**
     * An accelerator that acknowledges nothing for about this many milliseconds is given up: NAA_ERROR_GONE. That
     * takes at least as long, and less than twice as long. Default 4300.
     */
    int32_t silence_ms;
    /**
     * NAA_WAIT_...: how waiting threads wait.
     */
    int32_t wait;
    /**
     * NAA_DIALECT_...: what the accelerator means by its answers.
     */
    int32_t dialect;
    /**
     * NAA_LAYOUT_...: how regions lie on the accelerator and get there. A session may have
     * up to 255 regions, except with the symmetric layout.
     */
    int32_t layout;
    /**
     * The threshold of NAA_LAYOUT_PACKED in bytes. Default 65536.
     */
    uint32_t packed_bytes;
    /**
     * A call must be done within this many milliseconds, however the program waits for it; else it ends with
     * NAA_ERROR_GONE and the session is over. Default: NAA_TIMEOUT, a number of seconds, and no limit if that is not set;
     * -1 for no limit whatever NAA_TIMEOUT says. A call that takes more than 10 s is reported once, by a line on standard
     * error that names the accelerator and the function and says whether the accelerator answers probes; NAA_LOG=off
     * switches such lines off.
     */
    int32_t call_timeout_ms;
} naa_options;

/**
 * A region: memory that the accelerator has too.
 *
 * The memory is the program's. It is registered where it is and never copied, needs no alignment, may be on the
 * stack or in the heap, and must stay there until the session is closed. The program may read and write
 * it. From naa_call_start() until the end of the call was reported, it must not write inputs nor touch outputs.
 */
typedef struct naa_region {
    /**
     * Where it begins. May be NULL if `size` is 0.
     */
    void *addr;
    /**
     * In bytes, up to 2 GiB (2147483648).
     */
    uint64_t size;
    /**
     * NAA_INPUT, NAA_OUTPUT, NAA_INOUT or NAA_INTERNAL; the first three also with NAA_SINGLE_SEND.
     */
    uint32_t flags;
} naa_region;

/**
 * A function of an accelerator, as the accelerator describes it. The texts are UTF-8 and stay until the session is closed.
 */
typedef struct naa_function {
    /**
     * Its number, 1 to 127, which naa_call() takes.
     */
    int32_t code;
    /**
     * Its name, such as "dgemm".
     */
    const char *name;
    /**
     * "<a:f64 <b:f64 >c:f64": the parameters in their order, where < marks inputs, > outputs, = both and ~ internal
     * regions. The argument block and the status block are left out. "any": the function takes whatever it gets.
     */
    const char *parameters;
    /**
     * What it does, in one line.
     */
    const char *description;
} naa_function;

/**
 * How a call ended.
 */
typedef struct naa_outcome {
    /**
     * NAA_OK, NAA_ERROR_FUNCTION, or why the session is over.
     */
    naa_result result;
    /**
     * The function that was called, 1 to 127; 0: there was no call.
     */
    int32_t function;
    /**
     * The function's return code, 24 bits; 0: success. Codes below 0x40 have a meaning that naa_last_error() tells.
     */
    uint32_t return_code;
    /**
     * With NAA_DIALECT_NEXT, 24 bits from the function.
     */
    uint32_t user;
    /**
     * Bytes of the last output region that were written by the accelerator.
     */
    uint64_t last_output_bytes;
    /**
     * From the status block of a built-in function (16 to 63): with return code 0x13 (output too small) the bytes that
     * are needed, 0 if unknown.
     */
    uint64_t detail;
    /**
     * Bytes of each output region that are a result, also from the status block. Output 0 is the status block itself. All 0 for other
     * functions.
     */
    uint64_t produced[6];
} naa_outcome;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, "0.1.0". The text stays.
 */
const char *naa_version(void);

/**
 * What went wrong last on this thread: who has to act, and the remedy. Valid until the next failure on this thread;
 * "" before the first, never NULL.
 */
const char *naa_last_error(void);

/**
 * The name of a result, "NAA_ERROR_GONE"; "unknown" for a number that is none. The text stays.
 */
const char *naa_result_name(int32_t result);

/**
 * The code of the function that is called `name` by NAAICE or `naa serve`: "increment" is 1, "dgemm" is 18. 0 if
 * there is none. naa_session_find_function() asks an accelerator, and so knows kernels too.
 */
int32_t naa_function_code(const char *name);

/**
 * Sets all of `options`, of `size` bytes (sizeof(naa_options)), to the defaults.
 *
 * NAA_ERROR_ARGUMENT if `options` is NULL or `size` is not that of the struct.
 */
naa_result naa_options_init(struct naa_options *options, size_t size);

/**
 * Connects to an accelerator and agrees with it on regions. Returns when that is done, or has failed.
 *
 * `address`: "10.9.0.1", "10.9.0.1:12345", "[fd00::1]:12345", "name" or "name:12345"; the port is 12345 if none is
 * given. `regions`: `count` of them, at most 31, internal ones included, or 255 with another
 * layout than the symmetric one; the array is not needed afterwards, the memory it names is needed until the session is closed. Functions see the regions in this order. `options`: NULL for
 * the defaults. `session`: where the handle goes; NULL goes there after an error.
 *
 * NAA_ERROR_UNREACHABLE, NAA_ERROR_REFUSED and NAA_ERROR_TIMEOUT without a session; NAA_ERROR_ARGUMENT for regions,
 * address or options that cannot be used; NAA_ERROR_ENVIRONMENT, NAA_ERROR_DEVICE, NAA_ERROR_MEMORY, NAA_ERROR_GONE,
 * NAA_ERROR_PEER.
 */
naa_result naa_session_connect(const char *address,
                               const struct naa_region *regions,
                               size_t count,
                               const struct naa_options *options,
                               struct naa_session **session);

/**
 * Connects to a free accelerator that NAA_SPEC has for `function` with as many inputs as there are in `regions`. No
 * other session of this process gets that entry until this one is closed. Otherwise it does what
 * naa_session_connect() does.
 *
 * NAA_SPEC is "address:port:function:inputs", several separated by commas, IPv6 addresses in brackets, an empty port
 * for 12345. NAA_ERROR_ENVIRONMENT if it is not set, cannot be read or has no entry free.
 */
naa_result naa_session_connect_spec(int32_t function,
                                    const struct naa_region *regions,
                                    size_t count,
                                    const struct naa_options *options,
                                    struct naa_session **session);

/**
 * Disconnects, without waiting for the accelerator, and frees the session; NULL is allowed. A call that is under way is
 * given up: its outputs may hold part of its results. Afterwards, the memory of the regions is the program's alone.
 *
 * NAA_ERROR_ARGUMENT if `session` is none, or was closed; NAA_ERROR_STATE if another thread is using it. After
 * NAA_ERROR_DEVICE, the accelerator could not be told, it is closed all the same.
 */
naa_result naa_session_close(struct naa_session *session);

/**
 * Sets `state` to NAA_SESSION_IDLE, NAA_SESSION_RUNNING or NAA_SESSION_OVER.
 *
 * NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the session.
 */
naa_result naa_session_state(const struct naa_session *session, int32_t *state);

/**
 * Which provider serves the session, on which address, and why, and the layout, for people: "embedded on 10.9.0.2
 * (...); symmetric layout". Valid until
 * the session is closed; NULL if `session` is none or another thread is using it.
 */
const char *naa_session_describe(const struct naa_session *session);

/**
 * Sets `fd` to a descriptor for poll(), epoll or an event loop. After naa_call_test() said that the call has not
 * ended, the descriptor becomes readable when it is time to call naa_call_test() again: the call ended, its session did, or
 * the accelerator is to be asked for a sign of life. Read nothing from it, and do not close it: it is the session's, and
 * goes when the session is closed.
 *
 * NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the session, NAA_ERROR_DEVICE.
 */
naa_result naa_session_fd(struct naa_session *session,
                          int32_t *fd);

/**
 * Sends only `bytes` bytes from `offset` on of an input with the calls to come, to the same place of the accelerator's
 * region. The rest of that keeps what it has there. 0 bytes are allowed. `region` counts as in naa_session_connect().
 *
 * NAA_ERROR_ARGUMENT if the region is no input or has no such bytes; NAA_ERROR_STATE if another thread is using the
 * session. During a call it is for the next one.
 */
naa_result naa_session_set_range(struct naa_session *session,
                                 size_t region,
                                 uint64_t offset,
                                 uint64_t bytes);

/**
 * Sends all of an input again with the calls to come: undoes naa_session_set_range().
 *
 * NAA_ERROR_ARGUMENT, NAA_ERROR_STATE as there.
 */
naa_result naa_session_set_range_all(struct naa_session *session, size_t region);

/**
 * Asks the accelerator which functions it has. Sets `functions` to an array and `count` to its length. The array is in the
 * order of codes and valid until the session is closed.
 *
 * The accelerator is asked once, over a connection of its own that lasts as long as that takes; later calls of this function
 * and of naa_session_find_function() take the stored answer. So both may be called while a call is under way, and
 * what goes wrong with that connection leaves the session as it is. While the accelerator is asked, other threads may use the
 * session and close it. The connection has the session's options: setup_timeout_ms limits
 * connecting, call_timeout_ms the response. `naa serve` can be asked; other accelerators may have no catalogue, or no
 * place for another connection.
 *
 * NAA_ERROR_FUNCTION, NAA_ERROR_PEER or NAA_ERROR_GONE if the accelerator has no catalogue; NAA_ERROR_UNREACHABLE,
 * NAA_ERROR_REFUSED, NAA_ERROR_TIMEOUT, NAA_ERROR_DEVICE, NAA_ERROR_MEMORY and NAA_ERROR_ENVIRONMENT as
 * naa_session_connect(); NAA_ERROR_OVER if the session is over; NAA_ERROR_STATE if another thread is using the session when
 * the question begins or ends; NAA_ERROR_ARGUMENT, also if the session was closed meanwhile.
 */
naa_result naa_session_functions(struct naa_session *session,
                                 const struct naa_function **functions,
                                 size_t *count);

/**
 * Sets `function` to the code of the function that the accelerator calls `name`: of a kernel, or of any other function
 * that it has. naa_function_code() knows the functions of NAAICE and of `naa serve` without asking.
 *
 * NAA_ERROR_ARGUMENT if the accelerator has none of that name: the text lists those that it has. `function` is 0 then.
 * Otherwise it returns what naa_session_functions() returns, which also tells when the accelerator is asked.
 */
naa_result naa_session_find_function(struct naa_session *session,
                                     const char *name,
                                     int32_t *function);

/**
 * Starts a call and returns: sends the inputs and has `function`, 1 to 127, run. `user` are 24 bits that the function
 * may look at. The regions belong to the call until naa_call_test() or a wait reported its end.
 *
 * NAA_ERROR_STATE if a call is under way; NAA_ERROR_ARGUMENT; NAA_ERROR_OVER; after NAA_ERROR_GONE, NAA_ERROR_PEER and
 * NAA_ERROR_DEVICE the session is over and there is no call to wait for.
 */
naa_result naa_call_start(struct naa_session *session,
                          int32_t function,
                          uint32_t user);

/**
 * Sets `done` to whether the call has ended, without waiting. If so, `outcome`, unless NULL, is how.
 *
 * NAA_ERROR_FUNCTION if the function failed; NAA_ERROR_GONE, NAA_ERROR_PEER and NAA_ERROR_DEVICE if the session is over: the
 * call has ended then too. NAA_ERROR_STATE if no call is under way. Progress is made whether or not a program tests.
 */
naa_result naa_call_test(struct naa_session *session,
                         bool *done,
                         struct naa_outcome *outcome);

/**
 * Waits at most `timeout_ms` milliseconds for the call to end; 0 only looks, a negative number is no limit. `outcome`,
 * unless NULL, is how it ended.
 *
 * NAA_ERROR_TIMEOUT if it is still running, and goes on: this limits the wait, naa_options.call_timeout_ms or NAA_TIMEOUT
 * the call. Otherwise it returns what naa_call_test() returns.
 */
naa_result naa_call_wait(struct naa_session *session,
                         int32_t timeout_ms,
                         struct naa_outcome *outcome);

/**
 * Calls `function` and waits: naa_call_start() and naa_call_wait() in one.
 *
 * NAA_OK if the function succeeded. After NAA_ERROR_TIMEOUT the call goes on; wait for it again, or close the session.
 */
naa_result naa_call(struct naa_session *session,
                    int32_t function,
                    uint32_t user,
                    int32_t timeout_ms,
                    struct naa_outcome *outcome);

/**
 * Waits for the first of several calls to end, as MPI_Waitany() does: `index` becomes the number of its session in
 * `sessions`, which has `count`, and `outcome`, unless NULL, is how it ended. Sessions without a call and NULL are passed
 * over; if there are no others, `index` becomes NAA_UNDEFINED and NAA_OK is returned at once. `timeout_ms` is as for
 * naa_call_wait(); 0 tests all.
 *
 * NAA_ERROR_TIMEOUT if all still run, with NAA_UNDEFINED; else as naa_call_wait() for the session at `index`.
 * NAA_ERROR_ARGUMENT and NAA_ERROR_STATE, with NAA_UNDEFINED, if a session is none, is in use by another thread or is there
 * twice.
 */
naa_result naa_call_wait_any(struct naa_session *const *sessions,
                             size_t count,
                             int32_t timeout_ms,
                             int64_t *index,
                             struct naa_outcome *outcome);

/**
 * Waits for all calls of several sessions to end, as MPI_Waitall() does. `outcomes`, unless NULL, has a place for each of
 * `count` sessions; where there was no call, .function becomes 0. `timeout_ms` is for all together.
 *
 * NAA_OK if all succeeded. NAA_ERROR_TIMEOUT if some still run: their .result is NAA_ERROR_TIMEOUT, and they go on.
 * Otherwise, the first failure in the order of `sessions`; .result has each one's. NAA_ERROR_ARGUMENT and NAA_ERROR_STATE as
 * naa_call_wait_any(): then nothing was waited for.
 */
naa_result naa_call_wait_all(struct naa_session *const *sessions,
                             size_t count,
                             int32_t timeout_ms,
                             struct naa_outcome *outcomes);

/**
 * Gives `size` zeroed bytes, starting on a page. Free them by naa_buffer_free().
 *
 * NAA_ERROR_MEMORY, NAA_ERROR_ARGUMENT.
 */
naa_result naa_buffer_alloc(uint64_t size, struct naa_buffer **buffer);

/**
 * Makes `size` bytes at `addr`, which are the program's, a buffer. They stay the program's: keep them until the
 * buffer is freed and all sessions that used them are closed.
 *
 * NAA_ERROR_ARGUMENT also if they are part of another buffer, or not mapped for reading and writing.
 */
naa_result naa_buffer_wrap(void *addr,
                           uint64_t size,
                           struct naa_buffer **buffer);

/**
 * Where the memory of a buffer begins; NULL if `buffer` is none.
 */
void *naa_buffer_data(const struct naa_buffer *buffer);

/**
 * Bytes of a buffer; 0 if `buffer` is none.
 */
uint64_t naa_buffer_size(const struct naa_buffer *buffer);

/**
 * Frees a buffer; NULL is allowed. Memory of naa_buffer_alloc() stays until the last session that has a region in it
 * is closed.
 *
 * NAA_ERROR_ARGUMENT if `buffer` is none, or was freed.
 */
naa_result naa_buffer_free(struct naa_buffer *buffer);

/**
 * Writes the argument block of a built-in function (16 to 63) to `block`, of NAA_BLOCK_BYTES bytes.
 *
 * Built-in functions take an argument block as their first input and give a status block as their first output, of
 * NAA_BLOCK_BYTES each:
 *
 * | function          | values                                | inputs           | outputs       |
 * |-------------------|---------------------------------------|------------------|---------------|
 * | 16 sha256         | bytes                                 | data             | 32 bytes      |
 * | 17 crc32c         | bytes                                 | data             | uint32_t      |
 * | 18 dgemm          | m, n, k                               | A (m x k), B (k x n), double, by rows | C (m x n) |
 * | 19 fft            | n, 0 forward or 1 inverse             | n complex double | n complex double |
 * | 20 lz4-compress   | bytes                                 | data             | data          |
 * | 21 lz4-decompress | bytes                                 | data             | data          |
 * | 22 zstd-compress  | bytes, level (0: default)             | data             | data          |
 * | 23 zstd-decompress| bytes                                 | data             | data          |
 * | 24 vector-add     | n, type                               | a, b (n numbers) | a + b         |
 * | 25 histogram      | n, type, bins, lo, hi (bits of double)| n numbers        | bins + 3 uint64_t |
 * | 26 sort           | n, type, 0 ascending or 1 descending  | n numbers        | n numbers     |
 *
 * Types: 0 uint8_t, 1 uint32_t, 2 int32_t, 3 uint64_t, 4 int64_t, 5 float, 6 double. How much of each output is a
 * result: naa_outcome.produced.
 *
 * NAA_ERROR_ARGUMENT if the function is none of these or the values are not its.
 */
naa_result naa_arguments(void *block,
                         int32_t function,
                         const int64_t *values,
                         size_t count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NAA_H */
