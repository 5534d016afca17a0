import java.net.InetSocketAddress;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.*;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.*;

/**
 * A NameNode and DataNodes in one JVM that listen on one address, and say that they are on the hosts of these names.
 * Ends when stdin closes.
 */
public class HdfsOfNodes {
  public static void main(String[] a) throws Exception {
    String dir = System.getProperty("dir"), host = System.getProperty("host");
    Configuration c = new HdfsConfiguration();
    c.set("hadoop.tmp.dir", dir + "/tmp");
    c.set("dfs.namenode.name.dir", "file://" + dir + "/name");
    c.set("fs.defaultFS", "hdfs://" + host + ":0");
    c.set("dfs.namenode.rpc-address", host + ":0");
    c.set("dfs.namenode.http-address", host + ":0");
    c.set("dfs.namenode.datanode.registration.ip-hostname-check", "false");
    c.set("dfs.namenode.fs-limits.min-block-size", "4096");
    c.set("dfs.namenode.safemode.extension", "0");
    c.set("dfs.permissions.enabled", "false");
    c.set("dfs.heartbeat.interval", "1");
    c.set("dfs.namenode.heartbeat.recheck-interval", "2000");
    for (String each : new String[] {"address", "http.address", "ipc.address"}) c.set("dfs.datanode." + each, host + ":0");
    org.apache.hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(true); // as several have the same names
    NameNode.format(c);
    NameNode nn = NameNode.createNameNode(new String[0], c);
    InetSocketAddress rpc = nn.getNameNodeAddress();
    String uri = "hdfs://" + host + ":" + rpc.getPort();
    List<DataNode> nodes = new ArrayList<>();
    for (String name : System.getProperty("names").split(",")) {
      Configuration own = new HdfsConfiguration(c);
      own.set("fs.defaultFS", uri);
      own.set("dfs.namenode.rpc-address", host + ":" + rpc.getPort());
      own.set("dfs.datanode.data.dir", "file://" + dir + "/" + name);
      own.set("dfs.datanode.hostname", name);
      nodes.add(DataNode.createDataNode(new String[0], own));
    }
    while (nn.getNamesystem().getNumLiveDataNodes() < nodes.size() || nn.isInSafeMode()) Thread.sleep(20);
    System.out.println("{\"uri\":\"" + uri + "\",\"http\":\"" + host + ":" + nn.getHttpAddress().getPort() + "\"}");
    System.out.flush();
    while (System.in.read() >= 0) {}
    Runtime.getRuntime().halt(0);
  }
}
