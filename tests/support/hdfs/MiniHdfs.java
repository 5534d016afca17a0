import java.io.IOException;
import java.net.*;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import org.apache.hadoop.conf.*;
import org.apache.hadoop.hdfs.*;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.net.StandardSocketFactory;

/**
 * Multi-DataNode HDFS in one JVM, each DataNode with an address of its own: 127.0.0.2 and on.
 * Ends on SIGTERM or when stdin closes. Commands on stdin: "stop N", "start N".
 */
public class MiniHdfs {
  /** Sockets that are bound to the address of a DataNode, by which the NameNode knows who writes. */
  public static class Bound extends StandardSocketFactory implements Configurable {
    private Configuration conf;
    private String address() { return conf.get("own.address"); }
    @Override public void setConf(Configuration c) { conf = c; }
    @Override public Configuration getConf() { return conf; }
    @Override public boolean equals(Object o) { return o instanceof Bound && ((Bound) o).address().equals(address()); }
    @Override public int hashCode() { return address().hashCode(); }
    @Override public Socket createSocket() throws IOException {
      Socket s = super.createSocket();
      s.bind(new InetSocketAddress(address(), 0));
      return s;
    }
  }

  public static void main(String[] a) throws Exception {
    int n = Integer.getInteger("dn", 3);
    Configuration c = new HdfsConfiguration();
    c.setClassLoader(MiniHdfs.class.getClassLoader()); // knows what is compiled here
    c.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, System.getProperty("dir", "target/minihdfs"));
    c.set("dfs.replication", System.getProperty("repl", "2"));
    c.set("dfs.blocksize", System.getProperty("bs", "1048576"));
    c.set("dfs.namenode.fs-limits.min-block-size", "4096");
    c.set("dfs.permissions.enabled", "true"); // whoever starts it may do all
    c.set("dfs.heartbeat.interval", "1");
    c.set("dfs.namenode.heartbeat.recheck-interval", "2000");
    c.set("dfs.namenode.datanode.registration.ip-hostname-check", "false"); // those addresses have no names
    String[] hosts = new String[n], racks = new String[n];
    Configuration[] own = new Configuration[n];
    for (int i = 0; i < n; i++) {
      hosts[i] = "node" + i; racks[i] = "/rack" + (i / 2);
      own[i] = new Configuration(false);
      own[i].set("own.address", "127.0.0." + (i + 2));
      own[i].set("hadoop.rpc.socket.factory.class.default", Bound.class.getName());
      for (String each : new String[] {"address", "http.address", "ipc.address"}) own[i].set("dfs.datanode." + each, "127.0.0." + (i + 2) + ":0");
    }
    long t = System.nanoTime();
    MiniDFSCluster m = new MiniDFSCluster.Builder(c).numDataNodes(n).storagesPerDatanode(1).racks(racks).hosts(hosts)
        .dataNodeConfOverlays(own).checkDataNodeAddrConfig(true)
        .nameNodePort(Integer.getInteger("port", 0)).nameNodeHttpPort(Integer.getInteger("http", 0)).format(true).build();
    m.waitActive();
    CountDownLatch end = new CountDownLatch(1);
    sun.misc.Signal.handle(new sun.misc.Signal("TERM"), s -> end.countDown());
    StringBuilder j = new StringBuilder("{\"uri\":\"hdfs://localhost:" + m.getNameNodePort() + "\",\"http\":\"http://" + m.getNameNode().getHttpAddress().getHostString() + ":" + m.getNameNode().getHttpAddress().getPort() + "\",\"datanodes\":[");
    for (DataNode d : m.getDataNodes()) j.append(j.charAt(j.length() - 1) == '[' ? "" : ",").append("{\"host\":\"" + d.getDatanodeId().getHostName() + "\",\"xfer\":\"" + d.getDatanodeId().getXferAddr() + "\",\"http\":\"" + d.getDatanodeId().getInfoAddr() + "\"}");
    System.out.println(j + "],\"seconds\":" + (System.nanoTime() - t) / 1000000 / 1e3 + "}"); System.out.flush();
    Map<Integer, MiniDFSCluster.DataNodeProperties> down = new HashMap<>();
    Thread r = new Thread(() -> { try (Scanner s = new Scanner(System.in)) { while (s.hasNextLine()) { String[] w = s.nextLine().trim().split(" +");
        if (w[0].equals("stop")) for (int i = 0; i < m.getDataNodes().size(); i++) if (m.getDataNodes().get(i).getDatanodeId().getHostName().equals("node" + w[1])) { down.put(Integer.valueOf(w[1]), m.stopDataNode(i)); break; }
        if (w[0].equals("start")) { m.restartDataNode(down.remove(Integer.valueOf(w[1])), true); m.waitActive(); }
        System.out.println("ok"); System.out.flush(); } } catch (Exception e) { e.printStackTrace(); } end.countDown(); });
    r.setDaemon(true); r.start();
    end.await(); m.shutdown(true); System.exit(0);
  }
}
