/* control_folder.c: the folder of a user's control files. See control.h.
 *
 * Any user may create files with any name in /dev/shm. Only its owner can enter this folder, so no
 * other user can occupy the name of a group or access its file. The folder is named after the
 * user's id. If another user created a folder with that name, it is rejected. The folder is not
 * removed when it is empty, because a process that starts at that moment would lose it.
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
    snprintf(why, sizeof why, "it is not a directory; remove it");
  else if ((status->st_mode & 077) != 0)
    snprintf(why, sizeof why,
             "other users can access it (mode %03o, not 700); remove it, or set its mode to 700",
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
                           : fail_system(path, "cannot examine the folder of control files");
  openreg_status result = check(path, &status);
  /* The umask of the process that created it may have removed the user's own permissions. */
  if (result == OPENREG_OK && (status.st_mode & 0700) != 0700 && chmod(path, 0700) != 0)
    return fail_system(path, "cannot set the mode of the folder of control files");
  return result;
}

openreg_status openreg_control_make_folder(void) {
  char path[OPENREG_CONTROL_PATH_BYTES];
  openreg_control_folder(path);
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return fail_system(path, "cannot create the folder of control files");
  openreg_status status = openreg_control_check_folder();
  return status == OPENREG_NOT_READY
             ? fail_system(path, "cannot create the folder of control files")
             : status;
}
