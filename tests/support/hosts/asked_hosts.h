/* Hosts a, b and c that `frostline doctor` asks, in the folder of support/cli.h. Their ssh is a
 * script that runs the command on this machine, in a folder of its own. Variables change it:
 * LOGIN is what each host runs first, and BEFORE what host b does in a mount name space of its own,
 * or in those of SPACES, too. No links are measured: host a is not this machine. Host b has this
 * version; host c has one that does not know the option --runs. */
#ifndef FL_TESTS_SUPPORT_HOSTS_ASKED_HOSTS_H
#define FL_TESTS_SUPPORT_HOSTS_ASKED_HOSTS_H

#include <stddef.h>

#define DOCTOR_PROGRAM FL_BINARY_DIR "/frostline"
#define DOCTOR_ASK                                                                                 \
    "PATH=$PWD/bin:$PATH " DOCTOR_PROGRAM " doctor job.yaml --hosts hosts.yaml --json "

/* For a group of tests, which ends with cli_remove_folder. */
int make_asked_hosts(void **state);

/* Ask with these options: a line of this check and this host has the verdict and the text. */
void expect_of_host(const char *options, size_t host, const char *check, const char *verdict,
                    const char *text);

/* The same of the check "runs". */
void expect_runs_of_host(const char *options, size_t host, const char *verdict, const char *text);

#endif
