// SPDX-License-Identifier: Apache-2.0
// Every limit of Kvern with its name and default, in one place. Units stand in the names.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace kvern::limits {

using std::chrono::milliseconds;

inline constexpr std::size_t page_bytes = 4096;  // alignment of leases, slices and direct I/O

inline constexpr std::size_t json_depth_max = 32;  // levels of any JSON document that is read

// Memory (design: memory).
inline constexpr std::size_t registration_bytes_max = (std::size_t{4} << 30) - (std::size_t{64} << 10);
inline constexpr std::size_t uring_buffer_bytes_max = std::size_t{1} << 30;  // the kernel's limit for one fixed buffer
inline constexpr double quarantine_fraction_max = 0.25;                      // of a region; beyond it no new loads

// Store (design: store).
inline constexpr std::size_t key_bytes_max = 3584;  // any key of S3, mapped, below a bucket
inline constexpr std::size_t key_component_bytes_max = 255;
inline constexpr std::size_t metadata_bytes_max = 8192;
inline constexpr std::size_t list_entries_max = 1000;
inline constexpr std::size_t queued_ops_max = 65536;  // per store; beyond it an operation is busy
inline constexpr std::size_t open_uploads_max = 1024;
inline constexpr unsigned file_depth_default = 16;  // reads in flight per file store
inline constexpr unsigned file_depth_max = 256;
inline constexpr std::size_t file_ring_cached_bytes_max = 256 << 10;   // buffered reads up to this take io_uring
inline constexpr std::size_t file_piece_bytes = std::size_t{1} << 20;  // one system call moves at most this
inline constexpr unsigned file_threads_default = 8;  // pool of the file engine: writes, stats, buffered I/O
inline constexpr unsigned file_look_threads =
    2;  // more that only answer stats, lists and removes: these never wait for a write
inline constexpr std::size_t file_stats_per_task = 64;    // of a batch of stats, one thread does this many at a time
inline constexpr std::size_t file_removes_per_task = 32;  // likewise of removes, under one lock
inline constexpr milliseconds file_lock_wait{2000};       // for the lock of etag conditions; then busy
inline constexpr std::size_t uring_buffers_max = 1024;    // registered parts of up to 1 GiB a file store
inline constexpr milliseconds temporary_age_max{60 * 60 * 1000};  // older left-over temporaries are removed
inline constexpr milliseconds use_mark_interval{60 * 60 * 1000};  // a use moves an mtime that is older than this
inline constexpr milliseconds close_wait{5000};     // how long closing a store waits for what is in flight
inline constexpr milliseconds open_wait{10000};     // how long opening a store waits for its file system
inline constexpr milliseconds answer_wait{10000};   // how long the start of an engine waits for one answer of a store
inline constexpr milliseconds command_wait{30000};  // how long a command waits for one answer of a store
inline constexpr milliseconds fault_check{50};      // fault: looks at its control file at most this often
inline constexpr std::size_t mem_region_from_bytes = std::size_t{64} << 10;  // smaller values of mem: lie on the heap
inline constexpr std::size_t mem_store_bytes_default = std::size_t{256} << 20;

// HTTP, both ends (design: http).
inline constexpr std::size_t http_head_bytes_max = 16 << 10;  // of a head; also a connection's own buffer
inline constexpr std::size_t http_headers_max = 128;
inline constexpr std::size_t http_text_bytes_max = std::size_t{8} << 20;     // an answer that is read as text
inline constexpr std::size_t http_drain_bytes_max = std::size_t{1} << 20;    // of an unread body, to keep a connection
inline constexpr std::size_t http_piece_bytes = std::size_t{256} << 10;      // received, then summed while it is cached
inline constexpr std::size_t http_low_water_bytes = std::size_t{512} << 10;  // a socket wakes for so much ...
inline constexpr std::size_t http_low_water_from_bytes = std::size_t{64} << 10;  // ... where so much is missing
inline constexpr milliseconds http_tick{100};          // how often waiting connections are held against their limits
inline constexpr milliseconds http_linger{2000};       // for what a peer still sends when its answer is out
inline constexpr milliseconds http_accept_pause{200};  // after accept failed for want of descriptors

// HTTP and S3: what is parsed of what the other end sends (docs/protocol.md).
inline constexpr std::size_t s3_key_bytes_max = 1024;
inline constexpr std::size_t query_pairs_max = 64;
inline constexpr std::size_t signed_headers_max = 64;
inline constexpr milliseconds signature_skew_max{15 * 60 * 1000};          // between the clocks of client and server
inline constexpr milliseconds presigned_age_max{7 * 24 * 60 * 60 * 1000};  // the longest life of a presigned URL
inline constexpr std::size_t etags_max = 64;                               // in one If-Match or If-None-Match
inline constexpr std::size_t chunk_line_bytes_max = 1024;  // size, signature and extensions of one chunk
inline constexpr std::size_t trailer_bytes_max = 8192;     // all trailers of a body together
inline constexpr std::size_t trailers_max = 16;
inline constexpr unsigned upload_parts_max = 10000;
inline constexpr std::size_t delete_objects_max = 1000;  // in one DeleteObjects
inline constexpr std::size_t xml_depth_max = 8;
inline constexpr std::size_t xml_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t xml_delete_bytes_max = std::size_t{2} << 20;
inline constexpr std::size_t xml_complete_bytes_max = std::size_t{4} << 20;  // 10,000 parts with their checksums

// S3, the client: most are defaults of parameters of s3: stores.
inline constexpr unsigned s3_connections_default = 16;  // to one endpoint, of one loop
inline constexpr unsigned s3_connections_max = 256;
inline constexpr unsigned s3_endpoints_max = 64;
inline constexpr double s3_look_share = 0.25;  // of the connections are kept free of gets and puts, for looks
inline constexpr milliseconds s3_connect_timeout{2000};
inline constexpr milliseconds s3_stall_timeout{5000};  // a transfer that moves nothing for so long
inline constexpr milliseconds s3_timeout{60000};       // of one request with all its attempts
inline constexpr milliseconds s3_idle_limit{15000};    // a kept connection; below what servers keep theirs
inline constexpr unsigned s3_attempts_max = 4;
inline constexpr milliseconds s3_backoff{50};  // before the second attempt at most; doubled for each further one ...
inline constexpr milliseconds s3_backoff_max{5000};  // ... up to this
inline constexpr double s3_retry_share = 0.1;        // retries, of all requests to an endpoint; beyond it none ...
inline constexpr double s3_retries_saved_max = 20;   // ... but so many at the start, or after a calm while
inline constexpr std::size_t s3_multipart_bytes_default = std::size_t{64} << 20;  // larger values go in parts
inline constexpr std::size_t s3_part_bytes_min = std::size_t{8} << 20;            // S3 itself asks for 5 MiB
inline constexpr std::size_t s3_part_bytes_max = std::size_t{1} << 30;
inline constexpr unsigned s3_parts_in_flight = 4;               // of one value
inline constexpr std::size_t s3_metadata_text_max = 2048;       // names and values of user metadata, S3's own limit
inline constexpr std::size_t s3_exists_keys_max = 1000;         // in one question to a kvern server
inline constexpr std::size_t s3_answer_shown_bytes_max = 300;   // of a server's own words in a message
inline constexpr milliseconds s3_renew_before{10 * 60 * 1000};  // temporary credentials, ahead of their end
inline constexpr milliseconds s3_renew_pause{10000};            // after a failed renewal
inline constexpr milliseconds s3_credentials_wait{2000};        // for one answer of an endpoint that gives credentials
inline constexpr std::size_t s3_profile_bytes_max = std::size_t{1} << 20;  // a file of credentials or settings
inline constexpr milliseconds s3_abort_grace{500};  // after a close that aborts what is in flight

// One-sided transfers.
inline constexpr std::size_t fabric_token_bytes_max = 1024;
inline constexpr std::size_t fabric_provider_bytes_max = 32;
inline constexpr std::size_t fabric_endpoint_bytes_max = 192;
inline constexpr std::size_t fabric_guests_max = 256;       // processes that have handed memory to one server
inline constexpr std::size_t fabric_windows_max = 64;       // of each
inline constexpr milliseconds fabric_hand_over_wait{1000};  // for the other side, once a region
inline constexpr milliseconds fabric_hold{8000};    // a transfer without a definite answer may still write for so long
inline constexpr milliseconds fabric_pause{30000};  // of a path that did not work, until it is tried again
inline constexpr double fabric_held_fraction_max = 0.25;  // of the regions, in such transfers; beyond it: HTTP
// ... by libfabric. What a server writes ends before fabric_hold does.
inline constexpr milliseconds fabric_transfer_wait{5000};  // for one transfer, reached or not
inline constexpr milliseconds fabric_connect_wait{2000};   // until a peer can be written to at all
inline constexpr milliseconds fabric_cut_wait{1000};       // for what comes back when a connection is cut
inline constexpr std::size_t fabric_peers_max = 256;       // connected at a time; beyond it idle ones are dropped
inline constexpr std::size_t fabric_piece_bytes = std::size_t{8} << 20;  // one operation moves at most this
inline constexpr std::size_t fabric_pieces_max = 16;                     // operations under way with one peer
inline constexpr std::size_t fabric_reads_ahead = 3;  // windows of an object that are read and written at a time

// The S3 server (design: server); docs/operations.md names those that operators meet.
inline constexpr std::uint64_t server_memory_bytes_default = std::uint64_t{1} << 30;
inline constexpr std::uint64_t server_memory_bytes_min = std::uint64_t{64} << 20;
inline constexpr std::uint64_t server_memory_reserve_bytes = std::uint64_t{64} << 20;  // of it, not for bodies
inline constexpr std::size_t server_connections_default = 4096;
inline constexpr std::size_t server_first_read_bytes = std::size_t{64} << 10;     // an object that fits is read at once
inline constexpr std::size_t server_read_window_bytes = std::size_t{1} << 20;     // of larger ones, so much at a time
inline constexpr std::size_t server_send_buffer_bytes = std::size_t{512} << 10;   // of a socket; the kernel doubles it
inline constexpr std::size_t server_read_ahead_bytes = std::size_t{4} << 20;      // shorter ones are read at once
inline constexpr std::size_t server_window_bytes = std::size_t{4} << 20;          // of what is stored piecewise
inline constexpr std::size_t server_whole_put_bytes_max = std::size_t{16} << 20;  // larger ones are stored piecewise
inline constexpr std::size_t server_damaged_known_max = 1024;  // objects found damaged that are remembered
inline constexpr milliseconds server_memory_wait{30000};       // of a request for memory; then SlowDown
inline constexpr milliseconds server_head_limit{15000};   // from the first byte of a head to its end; TLS handshake
inline constexpr milliseconds server_idle_limit{75000};   // of a connection between requests
inline constexpr milliseconds server_stall_limit{30000};  // of a body that does not move
inline constexpr milliseconds server_ready_wait{2000};    // of /-/ready for the store; then it is not ready
inline constexpr milliseconds server_drain{30000};        // at a stop, for requests under way
inline constexpr milliseconds bucket_known_for{5000};     // a bucket is not asked for again for so long
inline constexpr milliseconds usage_scan_interval{5 * 60 * 1000};
inline constexpr milliseconds access_log_interval{500};           // lines are written at least so often ...
inline constexpr std::size_t access_log_buffer_bytes = 64 << 10;  // ... or when there are so many
inline constexpr std::size_t label_bytes_max = 512;               // of an object that names a model
inline constexpr std::uint64_t object_bytes_max = std::uint64_t{5} << 40;
inline constexpr std::uint32_t object_block_bytes_min = 256 << 10;  // one sum a block
inline constexpr std::uint32_t object_block_bytes_max = 4 << 20;
inline constexpr std::uint64_t object_blocks_wanted_max = 4096;    // blocks grow rather than their number
inline constexpr std::size_t object_bulk_inline_bytes_max = 1024;  // sums and parts in a record; longer: in a tail
inline constexpr std::size_t object_tail_room_bytes = 4096;        // for the tail of what is stored in one piece
inline constexpr std::uint64_t object_md5_bytes_max = 64 << 10;    // an MD5 as ETag costs too much beyond
inline constexpr std::size_t user_metadata_bytes_max = 2048;       // as S3 has it
inline constexpr std::uint64_t upload_part_bytes_min = std::uint64_t{5} << 20;  // all parts but the last
inline constexpr std::size_t exists_bytes_max = std::size_t{4} << 20;           // of a kvern-exists request

// Cache (design: cache).
inline constexpr std::size_t chunk_bytes_target = std::size_t{16} << 20;  // of the whole model's KV
inline constexpr std::uint32_t chunk_tokens_min = 256;
inline constexpr std::uint32_t chunk_tokens_max = 1024;
inline constexpr std::size_t hash_bytes_max = 64;
inline constexpr std::uint32_t slices_max = 65536;
inline constexpr std::size_t header_bytes_max = std::size_t{1} << 22;
inline constexpr std::size_t identity_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t fingerprint_sample_bytes = 64 << 10;      // one sample of a weights file
inline constexpr std::size_t fingerprint_samples_bytes_max = 4 << 20;  // all samples together
inline constexpr std::size_t presence_entries_max = 1 << 20;
inline constexpr milliseconds presence_positive_ttl{30000};
inline constexpr milliseconds presence_negative_ttl{200};
inline constexpr milliseconds presence_failed_ttl{30000};  // a key whose load failed

// Keep (design: keep): gc, du and fsck.
inline constexpr milliseconds collect_grace{60 * 1000};  // younger chunks are not too old, whatever the limit
inline constexpr milliseconds namespace_grace{24 * 60 * 60 * 1000};  // empty for so long: removed
inline constexpr milliseconds start_note_age_max{60 * 60 * 1000};    // older left-over notes of starts are removed
inline constexpr std::size_t collect_batch_objects = 512;            // looked at and removed together
inline constexpr unsigned verify_reads = 8;                          // objects that fsck reads at a time ...
inline constexpr std::size_t verify_piece_bytes = std::size_t{4}
                                                  << 20;  // ... in pieces of this: a header fits into one
inline constexpr milliseconds stop_wait{2000};  // how long an interrupted tool waits for answers that are under way

// Engine (design: engine halves); most are defaults of options.
inline constexpr std::size_t staging_mib_default = 1024;
inline constexpr std::uint32_t lookup_wait_us_default = 500;
inline constexpr std::uint32_t lookup_deadline_ms_default = 50;
inline constexpr std::uint32_t load_stall_ms_default = 2000;
inline constexpr milliseconds namespace_mark_interval{6 * 60 * 60 * 1000};  // an engine keeps its namespace so fresh
inline constexpr unsigned min_free_percent_default = 5;                     // of the store; below it stores stop
inline constexpr milliseconds space_interval{1000};  // how often a worker that stores asks for the space
inline constexpr milliseconds peer_read_wait{1000};  // for another rank's read, and at most half of load_stall_ms
inline constexpr milliseconds load_turn_wait{1000};  // for other requests' loads to be run, where memory is tight
inline constexpr unsigned load_attempts_max = 3;     // failed loads of one request; then it is computed
inline constexpr std::size_t gpu_staging_mib_default = 256;
inline constexpr std::size_t lookup_first_chunks = 64;     // asked alone first: most misses end here
inline constexpr double store_staging_fraction_max = 0.5;  // stores may hold this part of staging, loads the rest
inline constexpr unsigned breaker_failures = 3;            // in a row, then the store is left alone ...
inline constexpr milliseconds breaker_open{5000};          // ... for this long, then one probe; doubled if that fails
inline constexpr milliseconds breaker_open_max{20000};     // ... up to this

}  // namespace kvern::limits
