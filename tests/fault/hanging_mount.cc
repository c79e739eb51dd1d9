// SPDX-License-Identifier: Apache-2.0
// hanging_mount SOURCE CONTROL MOUNTPOINT: a FUSE file system that passes everything through to SOURCE, until told
// otherwise. CONTROL is a file of words: "read" makes every read wait until the word is gone, "read=116" makes it fail
// with that errno. The words are the names of the handlers below; "all" is each of them. Runs in the foreground;
// SIGSTOP hangs everything. For tests only.
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

std::string source, control;

// What CONTROL says about this handler: 0 to go on, or a negative errno value; waits while it says so.
int told(const std::string& name) {
    for (;;) {
        bool wait = false;
        std::ifstream file(control);
        for (std::string word; file >> word;) {
            if (word == name || word == "all") wait = true;
            if (word.starts_with(name + "=")) return -std::atoi(word.c_str() + name.size() + 1);
        }
        if (!wait) return 0;
        usleep(5000);
    }
}

int result(long value) {
    return value < 0 ? -errno : static_cast<int>(value);
}

std::string below(const char* path) {
    return source + path;
}
int fd_of(const fuse_file_info* file) {
    return static_cast<int>(file->fh);
}

#define TOLD(name) \
    if (const int answer = told(name); answer != 0) return answer

int do_getattr(const char* path, struct stat* status, fuse_file_info*) {
    TOLD("getattr");
    return result(lstat(below(path).c_str(), status));
}
int do_mkdir(const char* path, mode_t mode) {
    TOLD("mkdir");
    return result(mkdir(below(path).c_str(), mode));
}
int do_unlink(const char* path) {
    TOLD("unlink");
    return result(unlink(below(path).c_str()));
}
int do_rmdir(const char* path) {
    TOLD("rmdir");
    return result(rmdir(below(path).c_str()));
}
int do_rename(const char* from, const char* to, unsigned flags) {
    TOLD("rename");
    return result(renameat2(AT_FDCWD, below(from).c_str(), AT_FDCWD, below(to).c_str(), flags));
}
int do_link(const char* from, const char* to) {
    TOLD("link");
    return result(link(below(from).c_str(), below(to).c_str()));
}
int do_chmod(const char* path, mode_t mode, fuse_file_info*) {
    TOLD("chmod");
    return result(chmod(below(path).c_str(), mode));
}
int do_truncate(const char* path, off_t size, fuse_file_info*) {
    TOLD("truncate");
    return result(truncate(below(path).c_str(), size));
}
int do_utimens(const char* path, const timespec times[2], fuse_file_info*) {
    TOLD("utimens");
    return result(utimensat(AT_FDCWD, below(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}
int opened(int fd, fuse_file_info* file) {
    if (fd < 0) return -errno;
    file->fh = static_cast<std::uint64_t>(fd);
    return 0;
}
int do_open(const char* path, fuse_file_info* file) {
    TOLD("open");
    return opened(open(below(path).c_str(), file->flags & ~O_DIRECT), file);
}
int do_create(const char* path, mode_t mode, fuse_file_info* file) {
    TOLD("create");
    return opened(open(below(path).c_str(), (file->flags & ~O_DIRECT) | O_CREAT, mode), file);
}
int do_read(const char*, char* data, size_t size, off_t offset, fuse_file_info* file) {
    TOLD("read");
    return result(pread(fd_of(file), data, size, offset));
}
int do_write(const char*, const char* data, size_t size, off_t offset, fuse_file_info* file) {
    TOLD("write");
    return result(pwrite(fd_of(file), data, size, offset));
}
int do_flush(const char*, fuse_file_info*) {
    return told("flush");
}
int do_release(const char*, fuse_file_info* file) {
    return result(close(fd_of(file)));
}
int do_statfs(const char* path, struct statvfs* status) {
    TOLD("statfs");
    return result(statvfs(below(path).c_str(), status));
}
int do_setxattr(const char* path, const char* name, const char* value, size_t size, int flags) {
    TOLD("setxattr");
    return result(lsetxattr(below(path).c_str(), name, value, size, flags));
}
int do_getxattr(const char* path, const char* name, char* value, size_t size) {
    TOLD("getxattr");
    return result(lgetxattr(below(path).c_str(), name, value, size));
}
int do_readdir(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
    TOLD("readdir");
    DIR* const folder = opendir(below(path).c_str());
    if (folder == nullptr) return -errno;
    while (const auto* entry = readdir(folder)) fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
    closedir(folder);
    return 0;
}
// Nothing is remembered by the kernel: every look reaches this process.
void* start(fuse_conn_info*, fuse_config* config) {
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return fprintf(stderr, "usage: hanging_mount SOURCE CONTROL MOUNTPOINT\n"), 2;
    source = argv[1];
    control = argv[2];
    fuse_operations handlers{};
    handlers.init = start;
    handlers.getattr = do_getattr;
    handlers.mkdir = do_mkdir;
    handlers.unlink = do_unlink;
    handlers.rmdir = do_rmdir;
    handlers.rename = do_rename;
    handlers.link = do_link;
    handlers.chmod = do_chmod;
    handlers.truncate = do_truncate;
    handlers.utimens = do_utimens;
    handlers.open = do_open;
    handlers.create = do_create;
    handlers.read = do_read;
    handlers.write = do_write;
    handlers.flush = do_flush;
    handlers.release = do_release;
    handlers.statfs = do_statfs;
    handlers.setxattr = do_setxattr;
    handlers.getxattr = do_getxattr;
    handlers.readdir = do_readdir;
    char foreground[] = "-f", option[] = "-o", threads[] = "max_threads=64,max_idle_threads=64";
    char* arguments[] = {argv[0], foreground, option, threads, argv[3], nullptr};
    return fuse_main(5, arguments, &handlers, nullptr);
}
