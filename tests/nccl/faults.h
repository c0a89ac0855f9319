/* What goes wrong in the stand-in for NCCL, on request. FROSTLINE_NCCL_STANDIN, in the environment
 * of the process that loads it, has it, separated by commas; CALL is a function's name without
 * "nccl", N counts its calls in this process from 1:
 *   version=CODE       what ncclGetVersion gives
 *   streams=none       operations run beside streams, as calls in progress, in memory of the host:
 *                      for devices whose streams do their work at the call (tests/shim/standin.h)
 *   while=FILE         all that follows here happens, and calls count, only while there is FILE
 *   fail=CALL:N:CODE   the call returns an error
 *   error=CALL:N:CODE  the call succeeds; later the communicator has this asynchronous error
 *   late=CALL:N:US     what the call began goes on so much later
 *   stall=CALL:N       what the call began never ends
 *   hang=CALL:N        the call never returns
 *   crash=CALL:N       the call ends the process by SIGILL
 *   kill=CALL:N        the same by SIGKILL
 *   stop=CALL:N        the process stops in the call
 *   fork=CALL:N        the call starts a process that never ends, and goes on
 *   say=CALL:N         the call prints on standard output, and goes on
 * A CALL that is none of NCCL's: Load, when the library is loaded. */
#ifndef FL_TESTS_NCCL_FAULTS_H
#define FL_TESTS_NCCL_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_FAIL,
    FAULT_ERROR,
    FAULT_LATE,
    FAULT_STALL,
    FAULT_HANG,
    FAULT_CRASH,
    FAULT_KILL,
    FAULT_STOP,
    FAULT_FORK,
    FAULT_SAY
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int64_t value; /* a code, or microseconds */
} fault;

/* Count a call; what happens to it. A call that hangs or crashes does not come back from here. */
fault fault_of(const char *call);

int fault_version(int version);

/* Whether streams=none was asked for. */
bool fault_without_streams(void);

/* Exported: what has not happened yet does not happen any more. */
__attribute__((visibility("default"))) void nccl_standin_end_faults(void);

#endif
