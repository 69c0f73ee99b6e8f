/* A bridge on this host in the program itself, with one worker, and workers of naa_events.h in every state. The protocol is
 * that of ejfat::ring::shared. */
#ifndef CAPI_EVENTS_H
#define CAPI_EVENTS_H

#include <fcntl.h>
#include <naa_events.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "native.h"

enum { BLOCK = 64, PAGE = 1 << 16, SLOTS = 8, SLOT_BYTES = 64 };

struct seat {
  int listener, socket;
  unsigned char *events, *credits;
  uint32_t sequence, generations[SLOTS];
  bool given[SLOTS];
  pthread_t accepting;
  char source[128];
};

static inline void put_le(unsigned char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) {
    at[i] = (unsigned char)(value >> 8 * i);
  }
}

static inline uint32_t *word(unsigned char *memory, size_t at) { return (uint32_t *)(void *)(memory + at); }

static inline int shared_file(size_t size, unsigned char **memory) {
  const int fd = memfd_create("naa-capi", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
  CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  *memory = (unsigned char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(*memory != MAP_FAILED);
  return fd;
}

static inline void *accept_worker(void *of) {
  struct seat *seat = (struct seat *)of;
  unsigned char block[BLOCK];
  seat->socket = accept(seat->listener, NULL, NULL);
  CHECK(seat->socket >= 0 && recv(seat->socket, block, BLOCK, 0) == BLOCK);
  const unsigned char version = block[0];
  CHECK((version == 1 || version == 2) && block[4] == SLOTS && block[8] == SLOT_BYTES);
  const int files[2] = {shared_file(PAGE + PAGE, &seat->events), shared_file(PAGE, &seat->credits)};
  memset(block, 0, BLOCK);
  /* The answer's fields: the version that the worker asked for, no refusal, worker 1, placing "shared", instance 7. */
  put_le(block, version, 4);
  put_le(block + 8, 1, 4);
  put_le(block + 12, 2, 4);
  put_le(block + 16, 7, 8);
  struct iovec part = {block, BLOCK};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof files)];
  } control;
  memset(&control, 0, sizeof control);
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control.space;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  memcpy(CMSG_DATA(header), files, sizeof files);
  CHECK(sendmsg(seat->socket, &message, MSG_NOSIGNAL) == BLOCK);
  close(files[0]);
  close(files[1]);
  return NULL;
}

static inline void seat_open(struct seat *seat) {
  static int count;
  struct sockaddr_un address;
  memset(seat, 0, sizeof *seat);
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "/tmp/naa-capi-events-%d-%d", (int)getpid(), count++);
  snprintf(seat->source, sizeof seat->source, "unix:%s", address.sun_path);
  unlink(address.sun_path);
  seat->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK(bind(seat->listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(seat->listener, 4) == 0);
  CHECK(pthread_create(&seat->accepting, NULL, accept_worker, seat) == 0);
}

/* The bridge ends. */
static inline void seat_leave(struct seat *seat) {
  if (seat->socket >= 0) {
    close(seat->socket);
    close(seat->listener);
    unlink(seat->source + 5);
    seat->socket = -1;
  }
}

static inline void seat_close(struct seat *seat) {
  seat_leave(seat);
  munmap(seat->events, PAGE + PAGE);
  munmap(seat->credits, PAGE);
}

/* Slots that were not given back. */
static inline int seat_held(struct seat *seat) {
  int held = 0;
  for (int slot = 0; slot < SLOTS; slot++) {
    const uint32_t credit = __atomic_load_n(word(seat->credits, BLOCK + 4 * (size_t)slot), __ATOMIC_ACQUIRE);
    seat->given[slot] = seat->given[slot] && credit != seat->generations[slot];
    held += seat->given[slot];
  }
  return held;
}

/* Puts an event of one slot, all of whose bytes are its number. `again`: the descriptor says that another worker had it. */
static inline void seat_put_as(struct seat *seat, unsigned number, size_t length, bool again) {
  int slot = 0;
  CHECK(seat_held(seat) < SLOTS);
  while (seat->given[slot]) {
    slot++;
  }
  seat->given[slot] = true;
  seat->generations[slot]++;
  seat->sequence++;
  memset(seat->events + PAGE + slot * SLOT_BYTES, (int)number, length);
  unsigned char *block = seat->events + BLOCK + seat->sequence % SLOTS * BLOCK;
  memset(block, 0, BLOCK);
  put_le(block, seat->sequence, 4);
  put_le(block + 4, seat->generations[slot], 4);
  put_le(block + 8, (uint64_t)slot * SLOT_BYTES, 8);
  put_le(block + 16, length, 4);
  put_le(block + 20, 3, 2);
  /* Flags: 1 for an event with a tick, 2 for one that is delivered again. */
  put_le(block + 22, again ? 3 : 1, 2);
  put_le(block + 24, number, 8);
  put_le(block + 32, 1000 + number, 8);
  put_le(block + 56, 1, 4);
  put_le(block + 60, (uint64_t)slot, 4);
  __atomic_store_n(word(seat->events, 0), seat->sequence, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(word(seat->credits, 4), __ATOMIC_SEQ_CST) != 0) {
    CHECK(send(seat->socket, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1);
  }
}

static inline void seat_put(struct seat *seat, unsigned number, size_t length) {
  seat_put_as(seat, number, length, false);
}

static inline naa_worker_options worker_options(void) {
  naa_worker_options options;
  OK(naa_worker_options_init(&options, sizeof options));
  options.slots = SLOTS;
  options.slot_bytes = SLOT_BYTES;
  options.reconnect_ms = -1;
  return options;
}

static inline naa_worker *subscribed_as(struct seat *seat, const naa_worker_options *own) {
  naa_worker *worker = NULL;
  seat_open(seat);
  OK(naa_worker_open(seat->source, own, &worker));
  CHECK(worker != NULL && pthread_join(seat->accepting, NULL) == 0);
  return worker;
}

static inline naa_worker *subscribed(struct seat *seat) {
  const naa_worker_options own = worker_options();
  return subscribed_as(seat, &own);
}

static inline naa_event next_is(naa_worker *worker, unsigned number, size_t length) {
  naa_event event;
  OK(naa_worker_next(worker, 10000 * slowness(), &event));
  CHECK(event.event == number && event.length == length && event.data_id == 3);
  CHECK(event.has_tick && event.tick == 1000 + number && event.token != 0);
  all_are(event.data, length, number);
  return event;
}

#endif
