/* control_folder.c: the folder of a user's control files. See control.h.
 *
 * Names in /dev/shm are anybody's to take, and files there anybody's to make. In a folder that only
 * its user may enter nobody else can take the name of a group, or reach a file of it. The folder
 * itself has the user's number for a name; where another user has made one of that name, it is
 * refused. It stays when it is empty: a process that starts just then would find it gone.
 */
#include "device/ledger/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void openreg_control_folder(char path[OPENREG_CONTROL_PATH_BYTES]) {
  snprintf(path, OPENREG_CONTROL_PATH_BYTES, "/dev/shm/openreg-%u", geteuid());
}

static openreg_status fail_system(const char *path, const char *what) {
  return openreg_fail(OPENREG_SYSTEM, "openreg: %s: %s: %s", path, what, strerror(errno));
}

static openreg_status refuse(const char *path, const char *why) {
  return openreg_fail(OPENREG_INVALID_CONFIGURATION,
                      "openreg: %s cannot be used as the folder of this user's control files: %s",
                      path, why);
}

static openreg_status check(const char *path, const struct stat *status) {
  char why[128];
  if (status->st_uid != geteuid())
    snprintf(why, sizeof why, "it belongs to user %u, not to %u; have that user or root remove it",
             status->st_uid, geteuid());
  else if (!S_ISDIR(status->st_mode))
    snprintf(why, sizeof why, "it is not a folder; remove it");
  else if ((status->st_mode & 077) != 0)
    snprintf(why, sizeof why, "other users may use it (mode %03o, not 700); remove it, or chmod it",
             status->st_mode & 0777u);
  else
    return OPENREG_OK;
  return refuse(path, why);
}

openreg_status openreg_control_check_folder(void) {
  char path[OPENREG_CONTROL_PATH_BYTES];
  struct stat status;
  openreg_control_folder(path);
  if (lstat(path, &status) != 0)
    return errno == ENOENT ? OPENREG_NOT_READY
                           : fail_system(path, "looking at the folder of control files");
  openreg_status result = check(path, &status);
  /* Its maker's umask may have left out what the user may do. */
  if (result == OPENREG_OK && (status.st_mode & 0700) != 0700 && chmod(path, 0700) != 0)
    return fail_system(path, "setting the mode of the folder of control files");
  return result;
}

openreg_status openreg_control_make_folder(void) {
  char path[OPENREG_CONTROL_PATH_BYTES];
  openreg_control_folder(path);
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return fail_system(path, "making the folder of control files");
  openreg_status status = openreg_control_check_folder();
  return status == OPENREG_NOT_READY ? fail_system(path, "making the folder of control files")
                                     : status;
}
