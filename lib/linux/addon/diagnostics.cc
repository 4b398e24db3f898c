// Reads a namespace by netlink: listening ports, the generation of its nftables rules, policy routing. The requests
// are cheap enough for every pod of a node every few seconds.
#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/inet_diag.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "netlink.h"

#ifndef NETLINK_GET_STRICT_CHK
#define NETLINK_GET_STRICT_CHK 12
#endif

namespace weft {
namespace {

constexpr uint32_t LISTEN_STATE = 10;  // TCP_LISTEN of net/tcp_states.h

// An array of the members of a set, in their order.
template <typename Set, typename Make>
napi_value arrayOf(napi_env env, const Set& members, Make make) {
  napi_value result = nullptr;
  napi_create_array_with_length(env, members.size(), &result);
  uint32_t index = 0;
  for (const auto& member : members) napi_set_element(env, result, index++, make(env, member));
  return result;
}

// listeningPorts(netnsFd) → the TCP port of each listening socket of either family, ascending. Unlike /proc/net/tcp,
// the cost does not grow with the established connections of the namespace.
napi_value listeningPorts(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_SOCK_DIAG));
  if (fd.get() < 0) return throwErrno(env, "socket(NETLINK_SOCK_DIAG)", errno);
  std::multiset<int> ports;
  for (const int family : {AF_INET, AF_INET6}) {
    struct {
      nlmsghdr header;
      inet_diag_req_v2 request;
    } message = {};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.request.sdiag_family = static_cast<uint8_t>(family);
    message.request.sdiag_protocol = IPPROTO_TCP;
    message.request.idiag_states = 1U << LISTEN_STATE;
    const int failed = askNetlink(fd.get(), &message.header, [&ports](const nlmsghdr* header) {
      ports.insert(ntohs(static_cast<const inet_diag_msg*>(NLMSG_DATA(header))->id.idiag_sport));
    });
    if (failed != 0) return throwErrno(env, "sock_diag", failed);
  }
  return arrayOf(env, ports, makeInteger);
}

// hasListeners(netnsFd, ports) → whether each TCP port has a listening socket of any address. One lookup a port, where a
// list of all goes through the listeners of every namespace.
napi_value hasListeners(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  uint32_t count = 0;
  if (napi_get_array_length(env, arguments.value(1), &count) != napi_ok) {
    napi_throw_type_error(env, nullptr, "argument 1 must be an array");
    return nullptr;
  }
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_SOCK_DIAG));
  if (fd.get() < 0) return throwErrno(env, "socket(NETLINK_SOCK_DIAG)", errno);
  for (uint32_t index = 0; index < count; index += 1) {
    napi_value element = nullptr;
    int32_t port = 0;
    napi_get_element(env, arguments.value(1), index, &element);
    if (napi_get_value_int32(env, element, &port) != napi_ok) {
      napi_throw_type_error(env, nullptr, "a port must be a number");
      return nullptr;
    }
    struct {
      nlmsghdr header;
      inet_diag_req_v2 request;
    } message = {};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST;
    // It finds IPv6 sockets too that take IPv4.
    message.request.sdiag_family = AF_INET;
    message.request.sdiag_protocol = IPPROTO_TCP;
    message.request.id.idiag_sport = htons(static_cast<uint16_t>(port));
    message.request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    message.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    const int failed = askNetlink(fd.get(), &message.header, [](const nlmsghdr*) {});
    if (failed == ENOENT) return makeBoolean(env, false);
    if (failed != 0) return throwErrno(env, "sock_diag", failed);
  }
  return makeBoolean(env, true);
}

// nftGeneration(netnsFd) → a number that every committed change of the namespace's nftables rules changes
// (iptables-nft writes them too); null where the kernel has no nftables.
napi_value nftGeneration(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_NETFILTER));
  if (fd.get() < 0) {
    if (errno == EPROTONOSUPPORT) return makeNull(env);
    return throwErrno(env, "socket(NETLINK_NETFILTER)", errno);
  }
  struct {
    nlmsghdr header;
    nfgenmsg request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETGEN;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  message.request.nfgen_family = AF_UNSPEC;
  message.request.version = NFNETLINK_V0;
  int64_t generation = -1;
  const int failed = askNetlink(fd.get(), &message.header, [&generation](const nlmsghdr* header) {
    const auto* attribute = reinterpret_cast<const nlattr*>(
        static_cast<const char*>(NLMSG_DATA(header)) + NLMSG_ALIGN(sizeof(nfgenmsg)));
    // NFTA_GEN_ID is the first attribute of the answer.
    if (attribute->nla_type != NFTA_GEN_ID) return;
    uint32_t value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(attribute) + NLA_HDRLEN, sizeof value);
    generation = ntohl(value);
  });
  if (failed == EINVAL || failed == EOPNOTSUPP) return makeNull(env);
  if (failed != 0) return throwErrno(env, "nfnetlink(GETGEN)", failed);
  return generation < 0 ? makeNull(env) : makeInteger(env, generation);
}

// The own address of an RTM_NEWADDR message; null without one.
const rtattr* ownAddress(const nlmsghdr* header) {
  const auto* entry = static_cast<const ifaddrmsg*>(NLMSG_DATA(header));
  auto left = static_cast<uint32_t>(header->nlmsg_len - NLMSG_LENGTH(sizeof *entry));
  const rtattr* found = nullptr;
  for (const auto* attribute = reinterpret_cast<const rtattr*>(entry + 1); RTA_OK(attribute, left);
       attribute = RTA_NEXT(attribute, left)) {
    // On a point-to-point link IFA_ADDRESS is the peer's, and IFA_LOCAL the own one.
    if (attribute->rta_type == IFA_LOCAL) return attribute;
    if (attribute->rta_type == IFA_ADDRESS) found = attribute;
  }
  return found;
}

// addresses(netnsFd) → the IPv4 and IPv6 addresses of the namespace's interfaces, as text.
napi_value addresses(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_ROUTE));
  if (fd.get() < 0) return throwErrno(env, "socket(NETLINK_ROUTE)", errno);
  struct {
    nlmsghdr header;
    ifaddrmsg request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = RTM_GETADDR;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.ifa_family = AF_UNSPEC;
  std::set<std::string> found;
  const int failed = askNetlink(fd.get(), &message.header, [&found](const nlmsghdr* header) {
    const int family = static_cast<const ifaddrmsg*>(NLMSG_DATA(header))->ifa_family;
    const rtattr* own = ownAddress(header);
    char text[INET6_ADDRSTRLEN];
    if (own == nullptr || RTA_PAYLOAD(own) != (family == AF_INET ? 4U : 16U)) return;
    if (inet_ntop(family, RTA_DATA(own), text, sizeof text) != nullptr) found.insert(text);
  });
  if (failed != 0) return throwErrno(env, "rtnetlink(GETADDR)", failed);
  return arrayOf(env, found, makeText);
}

uint32_t attributeNumber(const rtattr* attribute) {
  uint32_t value = 0;
  std::memcpy(&value, RTA_DATA(attribute), sizeof value);
  return value;
}

napi_value describeRule(napi_env env, const nlmsghdr* header) {
  const auto* rule = static_cast<const fib_rule_hdr*>(NLMSG_DATA(header));
  uint32_t priority = 0, mark = 0, mask = 0, table = rule->table;
  auto left = static_cast<uint32_t>(header->nlmsg_len - NLMSG_LENGTH(sizeof *rule));
  for (const auto* attribute = reinterpret_cast<const rtattr*>(rule + 1); RTA_OK(attribute, left);
       attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == FRA_PRIORITY) priority = attributeNumber(attribute);
    if (attribute->rta_type == FRA_FWMARK) mark = attributeNumber(attribute);
    if (attribute->rta_type == FRA_FWMASK) mask = attributeNumber(attribute);
    if (attribute->rta_type == FRA_TABLE) table = attributeNumber(attribute);
  }
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "priority", makeInteger(env, priority));
  setProperty(env, result, "mark", makeInteger(env, mark));
  setProperty(env, result, "mask", makeInteger(env, mask));
  setProperty(env, result, "table", makeInteger(env, table));
  setProperty(env, result, "prohibits", makeBoolean(env, rule->action == FR_ACT_PROHIBIT));
  return result;
}

// Appends one object per rule to `rules`. 0 or an errno.
int dumpRules(napi_env env, int fd, int family, napi_value rules) {
  struct {
    nlmsghdr header;
    fib_rule_hdr request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = RTM_GETRULE;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.family = static_cast<uint8_t>(family);
  uint32_t index = 0;
  return askNetlink(fd, &message.header, [&](const nlmsghdr* header) {
    if (header->nlmsg_type != RTM_NEWRULE) return;
    napi_set_element(env, rules, index, describeRule(env, header));
    index += 1;
  });
}

// Appends one object per route of `table` to `routes`. 0 or an errno.
int dumpRoutes(napi_env env, int fd, int family, int table, napi_value routes) {
  struct {
    nlmsghdr header;
    rtmsg request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = RTM_GETROUTE;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.rtm_family = static_cast<uint8_t>(family);
  message.request.rtm_table = static_cast<uint8_t>(table);
  uint32_t index = 0;
  const int failed = askNetlink(fd, &message.header, [&](const nlmsghdr* header) {
    const auto* route = static_cast<const rtmsg*>(NLMSG_DATA(header));
    if (header->nlmsg_type != RTM_NEWROUTE || route->rtm_table != table) return;
    napi_value result = nullptr;
    napi_create_object(env, &result);
    setProperty(env, result, "local", makeBoolean(env, route->rtm_type == RTN_LOCAL));
    setProperty(env, result, "prefixLength", makeInteger(env, route->rtm_dst_len));
    napi_set_element(env, routes, index, result);
    index += 1;
  });
  return failed == ENOENT ? 0 : failed;  // the table has never been used
}

// policyRouting(netnsFd, family, table) → {rules: [{priority, mark, mask, table, prohibits}], routes: [{local, prefixLength}]}
napi_value policyRouting(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const int family = arguments.integer(1) == 4 ? AF_INET : AF_INET6;
  const int table = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openNetlink(env, netnsFd, NETLINK_ROUTE));
  if (fd.get() < 0) return throwErrno(env, "socket(NETLINK_ROUTE)", errno);
  // The kernel then filters by table; without it the whole routing state would come.
  const int strict = 1;
  if (setsockopt(fd.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &strict, sizeof strict) != 0) {
    return throwErrno(env, "setsockopt(NETLINK_GET_STRICT_CHK)", errno);
  }
  napi_value rules = nullptr, routes = nullptr, result = nullptr;
  napi_create_array(env, &rules);
  napi_create_array(env, &routes);
  int failed = dumpRules(env, fd.get(), family, rules);
  if (failed == 0) failed = dumpRoutes(env, fd.get(), family, table, routes);
  if (failed != 0) return throwErrno(env, "rtnetlink", failed);
  napi_create_object(env, &result);
  setProperty(env, result, "rules", rules);
  setProperty(env, result, "routes", routes);
  return result;
}

}  // namespace

void registerDiagnostics(napi_env env, napi_value exports) {
  setFunction(env, exports, "listeningPorts", listeningPorts);
  setFunction(env, exports, "hasListeners", hasListeners);
  setFunction(env, exports, "nftGeneration", nftGeneration);
  setFunction(env, exports, "policyRouting", policyRouting);
  setFunction(env, exports, "addresses", addresses);
}

}  // namespace weft
