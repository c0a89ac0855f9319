/* How the head proves to a host that both see one run directory (run.shared):
 *
 *     the head  ①  takes the host in, and makes an empty file with a random name there
 *               ②  tells the host that name, over the connection that only they can read
 *     the host  ③  looks for the file
 *     the head  ④  removes it: once a worker of the host has started, or the host is lost
 *
 * A copy that was made before does not have that file. A copy that follows the directory, and an
 * overlay of it, do: they are found at the end (control/controller/members/far.c). */
#ifndef FL_CONTROL_STATE_HOSTS_RUN_PROOF_H
#define FL_CONTROL_STATE_HOSTS_RUN_PROOF_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

#define FL_RUN_PROOF_PREFIX "joining-"

enum { FL_RUN_PROOF_TEXT = 48 };

/* ① FL_EIO, and name is "". */
fl_status fl_run_proof_write(int dir_fd, char name[FL_RUN_PROOF_TEXT]) FL_MUST_CHECK;

/* ③ For wait_ms: a host may see changes of a network file system some seconds later. */
bool fl_run_proof_await(const char *run_dir, const char *name, int64_t wait_ms);

/* ④ Remove the file `name`, which is "" afterwards; if it is "", do nothing. */
void fl_run_proof_remove(int dir_fd, char name[FL_RUN_PROOF_TEXT]);

/* Those that a head that was killed has left. */
void fl_run_proof_sweep(int dir_fd);

/* ---- both ways ----
 *
 * Before a run, frostline doctor (launcher/doctor/shared_runs.h) makes such a file for each host in
 * the directory of runs, and also has the host prove that this one sees what it writes there:
 *
 *     the host  ⑤  makes a file of its own, the answer, whose name follows from that of the proof
 *     the head  ⑥  removes the answer, which it can only if both see one directory
 *     the host  ⑦  removes it otherwise, after wait_ms */

/* Whether a text from elsewhere may name a proof: it leads to no other directory. Pure. */
bool fl_run_proof_is_name(const char *text);

/* ⑤ ⑦ On the host, which has found the proof. Returns 0, or the errno of what could not be written.
 */
int fl_run_proof_answer(const char *dir, const char *proof, int64_t wait_ms);

/* ⑥ Whether the answer to the proof was there. It is there no more. Never waits. */
bool fl_run_proof_take_answer(int dir_fd, const char *proof);

#endif
