// Digests all packet filter rules of a namespace, whichever program wrote them: a full read without a process. Counters
// and what else packets change are left out, so that equal digests mean equal rules.
#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "netlink.h"

namespace weft {
namespace {

// FNV-1a, 64 bits: it tells accidents and repairs apart. Whoever may write rules needs no collision to pass them.
class Digest {
 public:
  void add(const void* bytes, size_t length) {
    const auto* byte = static_cast<const unsigned char*>(bytes);
    for (size_t index = 0; index < length; index += 1) {
      value_ = (value_ ^ byte[index]) * 0x100000001b3ULL;
    }
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

// Calls `onAttribute` for each whole attribute of a message part.
template <typename Handler>
void eachAttribute(const void* from, size_t length, const Handler& onAttribute) {
  const auto* at = static_cast<const char*>(from);
  while (length >= sizeof(nlattr)) {
    const auto* attribute = reinterpret_cast<const nlattr*>(at);
    const size_t size = attribute->nla_len;
    if (size < sizeof(nlattr) || size > length) return;
    onAttribute(attribute->nla_type & NLA_TYPE_MASK, at + NLA_HDRLEN, size - NLA_HDRLEN);
    const size_t step = NLA_ALIGN(size);
    if (step >= length) return;
    at += step;
    length -= step;
  }
}

// Statements whose data packets change.
bool counts(std::string_view expression) {
  return expression == "counter" || expression == "quota" || expression == "last";
}

void addExpressions(Digest& digest, const char* from, size_t length) {
  eachAttribute(from, length, [&digest](int, const char* element, size_t size) {
    std::string_view name;
    eachAttribute(element, size, [&](int type, const char* value, size_t bytes) {
      if (type == NFTA_EXPR_NAME) name = std::string_view(value, bytes > 0 ? bytes - 1 : 0);
      if (type == NFTA_EXPR_DATA && counts(name)) return;
      digest.add(value, bytes);
    });
  });
}

// Adds all objects that `request` dumps. 0 or an errno.
int addDump(int fd, int request, int counters, Digest& digest) {
  struct {
    nlmsghdr header;
    nfgenmsg request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = static_cast<uint16_t>((NFNL_SUBSYS_NFTABLES << 8) | request);
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.nfgen_family = AF_UNSPEC;
  message.request.version = NFNETLINK_V0;
  return askNetlink(fd, &message.header, [&](const nlmsghdr* header) {
    const auto* object = static_cast<const nfgenmsg*>(NLMSG_DATA(header));
    digest.add(&object->nfgen_family, sizeof object->nfgen_family);
    const size_t head = NLMSG_ALIGN(sizeof *object);
    eachAttribute(reinterpret_cast<const char*>(object) + head, NLMSG_PAYLOAD(header, head),
                  [&](int type, const char* value, size_t bytes) {
                    if (type == counters) return;
                    digest.add(&type, sizeof type);
                    if (request == NFT_MSG_GETRULE && type == NFTA_RULE_EXPRESSIONS) {
                      addExpressions(digest, value, bytes);
                    } else {
                      digest.add(value, bytes);
                    }
                  });
  });
}

// Tables, chains and rules of nftables; those of iptables-nft among them. 0 or an errno.
int addNftables(napi_env env, int netnsFd, Digest& digest) {
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_NETFILTER));
  if (fd.get() < 0) return errno == EPROTONOSUPPORT ? 0 : errno;
  constexpr int NO_COUNTERS = -1;
  int failed = addDump(fd.get(), NFT_MSG_GETTABLE, NO_COUNTERS, digest);
  if (failed == 0) failed = addDump(fd.get(), NFT_MSG_GETCHAIN, NFTA_CHAIN_COUNTERS, digest);
  if (failed == 0) failed = addDump(fd.get(), NFT_MSG_GETRULE, NO_COUNTERS, digest);
  // The kernel has no nftables.
  return failed == EINVAL || failed == EOPNOTSUPP ? 0 : failed;
}

// The two families of legacy iptables differ in names alone.
struct Legacy4 {
  using Info = ipt_getinfo;
  using Entries = ipt_get_entries;
  using Entry = ipt_entry;
  static constexpr int family = AF_INET, level = IPPROTO_IP;
  static constexpr int getInfo = IPT_SO_GET_INFO, getEntries = IPT_SO_GET_ENTRIES;
};
struct Legacy6 {
  using Info = ip6t_getinfo;
  using Entries = ip6t_get_entries;
  using Entry = ip6t_entry;
  static constexpr int family = AF_INET6, level = IPPROTO_IPV6;
  static constexpr int getInfo = IP6T_SO_GET_INFO, getEntries = IP6T_SO_GET_ENTRIES;
};

// A table may change its size between the two calls.
constexpr int TABLE_ATTEMPTS = 3;

// Adds one table of legacy iptables. 0 or an errno.
template <typename Kind>
int addLegacyTable(int fd, const char* name, Digest& digest) {
  for (int attempt = 1;; attempt += 1) {
    typename Kind::Info info = {};
    std::strncpy(info.name, name, sizeof info.name - 1);
    socklen_t length = sizeof info;
    if (getsockopt(fd, Kind::level, Kind::getInfo, &info, &length) != 0) {
      // The kernel has no such table, or no legacy iptables at all.
      return errno == ENOENT || errno == ENOPROTOOPT ? 0 : errno;
    }
    // Entries hold 64-bit counters, which a byte buffer need not be aligned for.
    std::vector<uint64_t> buffer((sizeof(typename Kind::Entries) + info.size) / 8 + 1);
    auto* table = reinterpret_cast<typename Kind::Entries*>(buffer.data());
    std::strncpy(table->name, name, sizeof table->name - 1);
    table->size = info.size;
    length = static_cast<socklen_t>(sizeof *table + info.size);
    if (getsockopt(fd, Kind::level, Kind::getEntries, table, &length) != 0) {
      if (errno == EAGAIN && attempt < TABLE_ATTEMPTS) continue;
      return errno;
    }
    auto* entries = reinterpret_cast<char*>(table->entrytable);
    for (size_t at = 0; at + sizeof(typename Kind::Entry) <= info.size;) {
      auto* entry = reinterpret_cast<typename Kind::Entry*>(entries + at);
      entry->counters = {};
      if (entry->next_offset == 0) break;
      at += entry->next_offset;
    }
    digest.add(name, std::strlen(name));
    digest.add(entries, info.size);
    return 0;
  }
}

template <typename Kind>
int addLegacy(napi_env env, int netnsFd, Digest& digest) {
  int made = -1;
  {
    NetnsScope scope(env, netnsFd);
    if (scope.error() != 0) return scope.error();
    made = socket(Kind::family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  }
  Descriptor fd(made);
  if (fd.get() < 0) return errno == EAFNOSUPPORT ? 0 : errno;
  for (const char* name : {"raw", "mangle", "nat"}) {
    const int failed = addLegacyTable<Kind>(fd.get(), name, digest);
    if (failed != 0) return failed;
  }
  return 0;
}

// rulesDigest(netnsFd, legacy) → text that differs when tables, chains or rules of nftables do, and with `legacy` those
// of legacy iptables in the tables raw, mangle and nat. What sets hold is left out; the generation covers it.
napi_value rulesDigest(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const bool legacy = arguments.boolean(1);
  if (arguments.failed()) return nullptr;
  Digest digest;
  int failed = addNftables(env, netnsFd, digest);
  if (failed != 0) return throwErrno(env, "nfnetlink", failed);
  if (legacy) failed = addLegacy<Legacy4>(env, netnsFd, digest);
  if (legacy && failed == 0) failed = addLegacy<Legacy6>(env, netnsFd, digest);
  if (failed != 0) return throwErrno(env, "getsockopt(SO_GET_ENTRIES)", failed);
  return makeText(env, digest.text());
}

}  // namespace

void registerRulesDigest(napi_env env, napi_value exports) {
  setFunction(env, exports, "rulesDigest", rulesDigest);
}

}  // namespace weft
