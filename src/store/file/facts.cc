// SPDX-License-Identifier: Apache-2.0
#include "store/file/facts.h"

#include <fcntl.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kvern/limits.h"

namespace kvern {
namespace {

struct KnownFileSystem {
    std::uint64_t magic;
    const char* name;
};
constexpr std::uint64_t tmpfs_magic = 0x01021994;
constexpr std::array known_file_systems{
    KnownFileSystem{0xEF53, "ext4"},         KnownFileSystem{0x58465342, "xfs"},
    KnownFileSystem{0x9123683E, "btrfs"},    KnownFileSystem{tmpfs_magic, "tmpfs"},
    KnownFileSystem{0x858458F6, "ramfs"},    KnownFileSystem{0x6969, "nfs"},
    KnownFileSystem{0xFF534D42, "cifs"},     KnownFileSystem{0xFE534D42, "smb2"},
    KnownFileSystem{0x65735546, "fuse"},     KnownFileSystem{0x794C7630, "overlayfs"},
    KnownFileSystem{0x00C36400, "ceph"},     KnownFileSystem{0x0BD00BD0, "lustre"},
    KnownFileSystem{0x47504653, "gpfs"},     KnownFileSystem{0x19830326, "beegfs"},
    KnownFileSystem{0x2FC12FC1, "zfs"},      KnownFileSystem{0xF2F52010, "f2fs"},
    KnownFileSystem{0x01021997, "9p"},       KnownFileSystem{0x01161970, "gfs2"},
    KnownFileSystem{0xCA451A4E, "bcachefs"}, KnownFileSystem{0x61756673, "aufs"}};

void name_file_system(const FileRoot& root, FileFacts& facts) {
    struct statfs status {};
    if (fstatfs(root.fd(), &status) != 0) {
        facts.file_system = "unknown file system";
        return;
    }
    const auto magic = static_cast<std::uint64_t>(status.f_type) & 0xFFFFFFFFU;
    facts.memory_file_system = magic == tmpfs_magic || magic == 0x858458F6;
    for (const auto& known : known_file_systems) {
        if (known.magic == magic) facts.file_system = known.name;
    }
    if (!facts.file_system.empty()) return;
    char text[32];
    snprintf(text, sizeof text, "file system 0x%llx", static_cast<unsigned long long>(magic));
    facts.file_system = text;
}

// Finds out whether a file without a name can be made and be given one.
void try_unnamed(const FileRoot& root, int folder, FileFacts& facts) {
    const Fd file(root.create_file(folder, nullptr, O_RDWR));
    if (!file) {
        facts.named_why = "files without a name are not supported here";
        return;
    }
    const auto name = root.temporary_name();
    if (linkat(file.get(), "", folder, name.c_str(), AT_EMPTY_PATH) == 0) {
        facts.link_way = LinkWay::by_descriptor;
    } else {
        const auto path = "/proc/self/fd/" + std::to_string(file.get());
        if (linkat(AT_FDCWD, path.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
            facts.link_way = LinkWay::by_proc;
        } else {
            facts.named_why = "a file without a name can't be linked: " + std::string(std::strerror(errno));
            return;
        }
    }
    unlinkat(folder, name.c_str(), 0);
}

// Empty if 4 KiB aligned direct I/O is known or shown to work on `fd`, else why not.
std::string try_direct(int fd) {
    struct statx status {};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0) {
        if (status.stx_dio_mem_align == 0) return "the file system has no direct I/O";
        if (status.stx_dio_offset_align > limits::page_bytes || status.stx_dio_mem_align > limits::page_bytes) {
            return "direct I/O here needs an alignment of " + std::to_string(status.stx_dio_offset_align) + " bytes";
        }
    }
    if (fcntl(fd, F_SETFL, O_DIRECT) != 0) return "O_DIRECT is refused: " + std::string(std::strerror(errno));
    const std::unique_ptr<void, void (*)(void*)> page(std::aligned_alloc(limits::page_bytes, limits::page_bytes),
                                                      std::free);
    std::memset(page.get(), 0, limits::page_bytes);
    if (pwrite(fd, page.get(), limits::page_bytes, 0) < 0) {
        return "a direct write failed: " + std::string(std::strerror(errno));
    }
    if (pread(fd, page.get(), limits::page_bytes, 0) < 0) {
        return "a direct read failed: " + std::string(std::strerror(errno));
    }
    return {};
}

}  // namespace

FileFacts find_facts(const FileRoot& root) {
    FileFacts facts;
    name_file_system(root, facts);
    std::shared_ptr<const Fd> folder;
    int error = root.temporaries(folder);
    const auto name = root.temporary_name();
    Fd file;
    if (error == 0) {
        const int created = root.create_file(folder->get(), name.c_str(), O_RDWR);
        if (created < 0) error = created;
        file.reset(created);
    }
    if (error != 0) {
        facts.not_writable_why = std::strerror(-error);
        facts.direct = !facts.memory_file_system;
        if (facts.memory_file_system) facts.buffered_why = facts.file_system + " has no device below";
        facts.attributes = true;
        return facts;
    }
    facts.writable = true;
    facts.attributes = fsetxattr(file.get(), metadata_attribute, "x", 1, 0) == 0;
    facts.buffered_why = facts.memory_file_system ? facts.file_system + " has no device below" : try_direct(file.get());
    facts.direct = facts.buffered_why.empty();
    unlinkat(folder->get(), name.c_str(), 0);
    try_unnamed(root, folder->get(), facts);
    return facts;
}

}  // namespace kvern
