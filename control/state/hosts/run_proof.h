/* How the head and a host find out that both see one directory: that of a run (run.shared) before
 * a worker starts there, or that of all runs, for frostline doctor.
 *
 *     the head  ①  makes an empty file with a random name there, the proof
 *               ②  tells the host that name, over a connection that only they can read
 *     the host  ③  looks for the file
 *               ④  makes another one, the answer, whose name follows from that of the proof
 *     the head  ⑤  removes the answer, which it can only if it sees what the host writes
 *               ⑥  removes the proof: then, or when the host is lost
 *
 * A copy that was made before does not have the proof. A copy that follows the directory, and an
 * overlay of it, do, and keep the answer to themselves. A copy that follows both ways passes if it
 * is fast enough: what a host has written into the model is compared at the end of a run
 * (control/controller/members/far.c). */
#ifndef FL_CONTROL_STATE_HOSTS_RUN_PROOF_H
#define FL_CONTROL_STATE_HOSTS_RUN_PROOF_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

#define FL_RUN_PROOF_PREFIX "joining-"

enum {
    FL_RUN_PROOF_TEXT = 48,
    FL_RUN_PROOF_SHOW_MS = 5000, /* for a change on a network file system to be seen elsewhere */
    FL_RUN_PROOF_OLD_S = 600,    /* no doctor needs its files for so long */
};

/* ① FL_EIO, or FL_EFAILED where that passes by itself, as without a free descriptor; name is "". */
fl_status fl_run_proof_write(int dir_fd, char name[FL_RUN_PROOF_TEXT]) FL_MUST_CHECK;

/* Whether a text from elsewhere may name a proof: it leads to no other directory. Pure. */
bool fl_run_proof_is_name(const char *text);

/* ③ For FL_RUN_PROOF_SHOW_MS. */
bool fl_run_proof_await(const char *dir, const char *proof);

/* ④ Returns 0, or the errno of what could not be written. */
int fl_run_proof_answer(const char *dir, const char *proof);

/* Wait until the answer is taken; remove it if it is not, for wait_ms. */
void fl_run_proof_withdraw(const char *dir, const char *proof, int64_t wait_ms);

/* ⑤ Whether the answer was there. It is there no more. Never waits. */
bool fl_run_proof_take_answer(const char *dir, const char *proof);

/* ⑥ Remove the file `name`, which is "" afterwards, and the answer to it; if it is "", do nothing.
 */
void fl_run_proof_remove(int dir_fd, char name[FL_RUN_PROOF_TEXT]);

/* Those that a head that was killed has left. */
void fl_run_proof_sweep(int dir_fd);

/* A lock that shows others that the process that has made the file lives, until the descriptor is
 * closed. -1: it is not held, as on a file system that has no locks. */
int fl_run_proof_hold(int dir_fd, const char *name);

/* In the directory of all runs, where several may be at work: remove the files whose process was
 * killed. These are older than FL_RUN_PROOF_OLD_S at the moment now_s, in seconds since 1970 by the
 * clock of the file system, and no process holds them. */
void fl_run_proof_sweep_old(int dir_fd, int64_t now_s);

/* ---- a directory of all runs that a doctor has made ---- */

/* Note in the directory that a doctor has made it, and n_made - 1 above it. Returns 0, or an errno.
 */
int fl_run_proof_note_made(int dir_fd, int n_made);

/* How many directories the doctor that ends now is to remove: those that were noted, if nothing but
 * the note is there. The note is removed then, and also if there is a run. 0: none */
int fl_run_proof_take_made(int dir_fd);

#endif
